//! The list of kernels, once: it becomes the table's fields and, for each instruction set, its shells.
//!
//! To add a kernel: write the generic body `fn name<S: Simd>(s: S, args…)` with `#[inline(always)]`, add its
//! line to `kernels!`, and a safe method that checks its arguments on `Kernels`.

/// Calls `$apply! { $args… ; list }` with one line per kernel. The body's first argument is the ISA token.
macro_rules! kernels {
    ($apply:ident $(, $arg:tt)*) => {
        $apply! { $($arg)* ;
            fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) => $crate::norm::rms_norm;
        }
    };
}
pub(crate) use kernels;

macro_rules! define_table {
    (; $(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? => $body:path;)*) => {
        /// One instruction set's kernels. Calling an entry requires the features of its instruction set.
        pub(crate) struct Table {
            $(pub(crate) $name: unsafe fn($($ty),*) $(-> $ret)?,)*
        }
    };
}
kernels!(define_table);

/// `stamp!(Token, (attributes))`: a `static TABLE` of shells that carry the attributes and call the bodies.
macro_rules! stamp {
    ($token:ident $attrs:tt ; $(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? => $body:path;)*) => {
        pub(crate) static TABLE: $crate::table::Table = $crate::table::Table {
            $($name: {
                $crate::table::shell! { $token $attrs fn $name($($arg: $ty),*) $(-> $ret)? => $body }
                $name
            },)*
        };
    };
}
pub(crate) use stamp;

macro_rules! shell {
    ($token:ident ($(#[$attr:meta])*) fn $name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)? => $body:path) => {
        $(#[$attr])*
        unsafe fn $name($($arg: $ty),*) $(-> $ret)? {
            // SAFETY: whoever calls through the table has checked the CPU for this token's features.
            $body(unsafe { $token::new_unchecked() }, $($arg),*)
        }
    };
}
pub(crate) use shell;
