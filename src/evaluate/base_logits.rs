//! llama.cpp's file of base logits: the predictions of one model for a text, 16 bits each, for others to be
//! measured against.
//!
//! Little-endian: `_logits_`, then n_ctx, n_vocab and n_chunk as i32, the tokens of all chunks as i32, and for every
//! scored position a record of 16-bit words: f32 scale, f32 least log-probability, n_vocab codes and one word of
//! padding if their number is odd. The log-probability of a token is `scale * code + least`; what is more than 16
//! below the largest has code 0.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use crate::tokenizer::Tokenizer;

use super::chunks::n_scored;
use super::{Chunks, MIN_CTX, Prediction};

const MAGIC: [u8; 8] = *b"_logits_";
/// Bytes before the tokens.
const HEADER: u64 = 20;
/// Log-probabilities further below the largest than this are not told apart.
const RANGE: f32 = 16.0;

/// Why a file of base logits cannot be used; the text names the file.
#[derive(Debug, thiserror::Error)]
#[error("{}: {fault}", path.display())]
pub struct BaseLogitsError {
    path: PathBuf,
    fault: Fault,
}

#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("not a file of base logits: expected it to begin with \"_logits_\", found {0:?}")]
    Magic(String),
    #[error("expected a header of {HEADER} bytes, found {0}")]
    Header(u64),
    #[error("{field}: expected {expected}, found {found}")]
    Field { field: &'static str, expected: String, found: i64 },
    #[error(
        "{chunks} chunks of {n_ctx} tokens and a vocabulary of {n_vocab} take {expected} bytes, found {found}"
    )]
    Size { chunks: u64, n_ctx: u64, n_vocab: u64, expected: u64, found: u64 },
    #[error(
        "made with a vocabulary of {found} tokens, but that of the model has {expected}: it is the base of another model"
    )]
    Vocabulary { expected: usize, found: usize },
    #[error("token {index}: {id} is outside the vocabulary of {n_vocab}")]
    Token { index: usize, id: i32, n_vocab: usize },
    #[error(
        "made from another text, or with another tokenizer: token {index} is {found}, the text has {expected} there"
    )]
    OtherText { index: usize, expected: u32, found: u32 },
    #[error("made from another text: it has {found} chunks, the text {expected}")]
    LongerText { expected: usize, found: usize },
    #[error(
        "chunk {chunk}, record {record}: expected a scale from 0 and a least log-probability up to that of an equal \
         share, found {scale} and {least}"
    )]
    Record { chunk: usize, record: usize, scale: f32, least: f32 },
}

/// A file of base logits, open for reading chunk by chunk.
pub struct BaseLogits {
    path: PathBuf,
    file: BufReader<File>,
    n_vocab: usize,
    n_ctx: usize,
    tokens: Vec<u32>,
    chunk: usize,
    records: Vec<u8>,
}

/// The log-probabilities that one record holds.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    scale: f32,
    least: f32,
    codes: &'a [u8],
}

impl BaseLogits {
    /// Opens a file and reads its tokens; sizes are checked before anything is made as large as they say.
    pub fn open(path: impl AsRef<Path>) -> Result<BaseLogits, BaseLogitsError> {
        let path = path.as_ref();
        BaseLogits::read(path).map_err(|fault| BaseLogitsError { path: path.to_owned(), fault })
    }

    fn read(path: &Path) -> Result<BaseLogits, Fault> {
        // Sizes are checked, so that it cannot be a pipe, and opening one might take forever.
        if !std::fs::metadata(path)?.is_file() {
            return Err(io::Error::other("not a regular file").into());
        }
        let file = File::open(path)?;
        let found = file.metadata()?.len();
        let mut file = BufReader::new(file);
        let mut magic = Vec::new();
        file.by_ref().take(8).read_to_end(&mut magic)?;
        if magic != MAGIC {
            return Err(Fault::Magic(String::from_utf8_lossy(&magic).into_owned()));
        }
        if found < HEADER {
            return Err(Fault::Header(found));
        }
        let mut field = |field, least: i64| -> Result<u64, Fault> {
            let mut bytes = [0; 4];
            file.read_exact(&mut bytes)?;
            let found = i64::from(i32::from_le_bytes(bytes));
            match found >= least {
                true => Ok(found as u64),
                false => Err(Fault::Field { field, expected: format!("at least {least}"), found }),
            }
        };
        let n_ctx = field("n_ctx", MIN_CTX as i64)?;
        let n_vocab = field("n_vocab", 1)?;
        let chunks = field("n_chunk", 1)?;
        // All three are below 2^31, so that only the last product can be too large for 64 bits.
        let chunk_bytes = 4 * n_ctx + n_scored(n_ctx as usize) as u64 * record_bytes(n_vocab as usize) as u64;
        let expected = chunk_bytes.saturating_mul(chunks).saturating_add(HEADER);
        if expected != found {
            return Err(Fault::Size { chunks, n_ctx, n_vocab, expected, found });
        }
        let mut bytes = vec![0; (4 * n_ctx * chunks) as usize];
        file.read_exact(&mut bytes)?;
        let (n_ctx, n_vocab) = (n_ctx as usize, n_vocab as usize);
        let token = |(index, bytes): (usize, &[u8; 4])| match i32::from_le_bytes(*bytes) {
            id if (0..n_vocab as i64).contains(&i64::from(id)) => Ok(id as u32),
            id => Err(Fault::Token { index, id, n_vocab }),
        };
        let tokens = bytes.as_chunks::<4>().0.iter().enumerate().map(token).collect::<Result<_, _>>()?;
        Ok(BaseLogits { path: path.to_owned(), file, n_vocab, n_ctx, tokens, chunk: 0, records: Vec::new() })
    }

    /// Tokens in a chunk.
    pub fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    /// The text as the file has it, for a model with `n_vocab` logits.
    ///
    /// # Errors
    /// If the file was made by a model with another vocabulary.
    pub fn chunks(&self, tokenizer: &Tokenizer, n_vocab: usize) -> Result<Chunks, BaseLogitsError> {
        if n_vocab != self.n_vocab {
            return Err(self.fault(Fault::Vocabulary { expected: n_vocab, found: self.n_vocab }));
        }
        Ok(Chunks::from_tokens(tokenizer, self.tokens.clone(), self.n_ctx))
    }

    /// Checks that the file was made from the beginning of this text.
    pub fn check_text(&self, text: &Chunks) -> Result<(), BaseLogitsError> {
        let mut pairs = self.tokens.iter().zip(text.tokens()).enumerate();
        if let Some((index, (&found, &expected))) = pairs.find(|(_, (found, expected))| found != expected) {
            return Err(self.fault(Fault::OtherText { index, expected, found }));
        }
        let (expected, found) = (text.len(), self.tokens.len() / self.n_ctx);
        match found > expected {
            true => Err(self.fault(Fault::LongerText { expected, found })),
            false => Ok(()),
        }
    }

    /// Reads the records of the next chunk.
    pub fn next_chunk(&mut self) -> Result<Vec<Record<'_>>, BaseLogitsError> {
        let size = record_bytes(self.n_vocab);
        self.records.resize(n_scored(self.n_ctx) * size, 0);
        if let Err(error) = self.file.read_exact(&mut self.records) {
            return Err(self.fault(error.into()));
        }
        self.chunk += 1;
        let equal_share = 1e-3 - (self.n_vocab as f32).ln();
        let records = self.records.chunks_exact(size).enumerate().map(|(i, bytes)| {
            let number =
                |at: usize| f32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
            let (scale, least) = (number(0), number(4));
            // The largest log-probability is at most 0 but for rounding, and of several tokens the least likely has at
            // most an equal share.
            let possible = scale >= 0.0 && least <= equal_share && scale * 65535.0 + least <= 1.0;
            match possible && least.is_finite() {
                true => Ok(Record { scale, least, codes: &bytes[8..8 + 2 * self.n_vocab] }),
                false => Err(self.fault(Fault::Record { chunk: self.chunk, record: i + 1, scale, least })),
            }
        });
        records.collect()
    }

    fn fault(&self, fault: Fault) -> BaseLogitsError {
        BaseLogitsError { path: self.path.clone(), fault }
    }
}

impl Record<'_> {
    /// Log-probabilities of the tokens from `first` on.
    pub(super) fn decode(&self, first: usize, out: &mut [f32]) {
        let (codes, _) = self.codes[2 * first..].as_chunks::<2>();
        for (out, &code) in out.iter_mut().zip(codes) {
            *out = self.scale * f32::from(u16::from_le_bytes(code)) + self.least;
        }
    }

    /// The log-probability of one token.
    pub(super) fn log_probability(&self, token: u32) -> f32 {
        let mut out = [0.0];
        self.decode(token as usize, &mut out);
        out[0]
    }

    /// The token with the largest log-probability, the first of several.
    pub(super) fn likeliest(&self) -> u32 {
        let codes = self.codes.as_chunks::<2>().0.iter().map(|&code| u16::from_le_bytes(code));
        let best = codes.enumerate().reduce(|a, b| if b.1 > a.1 { b } else { a });
        best.map_or(0, |(token, _)| token as u32)
    }
}

/// Writes what stands before the records.
pub fn write_header(out: &mut dyn Write, chunks: &Chunks, n_vocab: usize) -> io::Result<()> {
    out.write_all(&MAGIC)?;
    for n in [chunks.n_ctx(), n_vocab, chunks.len()] {
        let n = i32::try_from(n)
            .map_err(|_| io::Error::other(format!("{n} does not fit the format's 31 bits")))?;
        out.write_all(&n.to_le_bytes())?;
    }
    let tokens: Vec<u8> = chunks.tokens().iter().flat_map(|token| token.to_le_bytes()).collect();
    out.write_all(&tokens)
}

/// Bytes of a record.
pub fn record_bytes(n_vocab: usize) -> usize {
    2 * (n_vocab.next_multiple_of(2) + 4)
}

/// Makes the record of one row of logits (`out.len() == record_bytes(logits.len())`).
pub fn encode(logits: &[f32], prediction: &Prediction, out: &mut [u8]) {
    let smallest = logits.iter().fold(f32::INFINITY, |a, &b| a.min(b));
    let low = smallest.max(prediction.largest - RANGE);
    let scale = (prediction.largest - low) / 65535.0;
    let least = (f64::from(low - prediction.largest) - prediction.log_sum) as f32;
    out[..4].copy_from_slice(&scale.to_le_bytes());
    out[4..8].copy_from_slice(&least.to_le_bytes());
    let (codes, _) = out[8..].as_chunks_mut::<2>();
    for (code, &logit) in codes.iter_mut().zip(logits) {
        let rounded = if logit > low { ((logit - low) / scale).round_ties_even() as u16 } else { 0 };
        *code = rounded.to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use qgguf_kernels::Kernels;

    use super::*;

    #[test]
    fn a_record_keeps_log_probabilities_to_half_a_step() {
        let logits: Vec<f32> = (0..501).map(|i| (i * 37 % 501) as f32 * 0.1 - 20.0).collect();
        let prediction = Prediction::new(Kernels::best(), &logits, 3).unwrap();
        let mut bytes = vec![0; record_bytes(logits.len())];
        encode(&logits, &prediction, &mut bytes);
        assert_eq!(bytes.len(), 2 * (502 + 4));
        let number = |at: usize| f32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let record = Record { scale: number(0), least: number(4), codes: &bytes[8..8 + 2 * 501] };
        assert_eq!(record.scale, 16.0 / 65535.0);
        assert_eq!(record.likeliest(), prediction.likeliest);
        for (token, &logit) in logits.iter().enumerate() {
            let exact = prediction.log_probability(logit.max(prediction.largest - RANGE));
            let kept = f64::from(record.log_probability(token as u32));
            assert!((kept - exact).abs() < 0.51 * 16.0 / 65535.0, "{token}: {kept} for {exact}");
        }
    }
}
