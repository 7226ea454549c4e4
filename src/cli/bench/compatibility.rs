//! Flags of llama-bench for devices and schedulers that are not here. Scripts give them with the value that
//! means what this program does anyway; every other value is an error that says so.

use clap::{Arg, ArgAction, ArgMatches, Command, error::Error};

/// The flags, and the values that are accepted.
const FLAGS: [(&str, &[&str]); 17] = [
    ("n-cpu-moe", &["0"]),
    ("split-mode", &["layer", "none"]),
    ("main-gpu", &["0"]),
    ("no-kv-offload", &["0"]),
    ("device", &["auto", "none"]),
    ("direct-io", &["0"]),
    ("lazy-mode", &["auto", "off"]),
    ("embeddings", &["0"]),
    ("tensor-split", &["0"]),
    ("override-tensor", &["none"]),
    ("no-op-offload", &["0"]),
    ("no-host", &["0"]),
    ("repack", &["0", "1"]),
    ("cpu-mask", &["0x0"]),
    ("cpu-strict", &["0"]),
    ("poll", &["50"]),
    ("prio", &["0"]),
];

/// Takes the flags and forgets them.
#[derive(Debug)]
pub struct Ignored;

impl clap::Args for Ignored {
    fn augment_args(command: Command) -> Command {
        FLAGS.iter().fold(command, |command, &(name, values)| {
            let flag = Arg::new(name).long(name).value_parser(values.to_vec()).action(ArgAction::Append);
            command.arg(flag.hide(true))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Ignored {
    fn from_arg_matches(_: &ArgMatches) -> Result<Ignored, Error> {
        Ok(Ignored)
    }

    fn update_from_arg_matches(&mut self, _: &ArgMatches) -> Result<(), Error> {
        Ok(())
    }
}
