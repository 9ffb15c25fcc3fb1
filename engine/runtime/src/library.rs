//! Libraries of drivers, found when the program runs.

/// A struct of the functions of a library: name in Rust, symbol, type. `of` takes them from a
/// library, which stays loaded as long as the struct lives, or names the one that is missing.
macro_rules! functions {
    (
        $(#[$about:meta])*
        $library:ident {
            $($name:ident: $symbol:literal($($argument:ty),* $(,)?) -> $result:ty;)+
        }
    ) => {
        $(#[$about])*
        pub(super) struct $library {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> $result,)+
            _library: libloading::Library,
        }

        impl $library {
            /// The first of these libraries that is there; else which were looked for.
            pub(super) fn open(names: &[&str]) -> Result<$library, String> {
                let library = $crate::library::first(names)?;
                $(
                    // SAFETY: the driver's documents give the function this type.
                    let $name = *unsafe {
                        library.get::<unsafe extern "C" fn($($argument),*) -> $result>(
                            concat!($symbol, "\0").as_bytes(),
                        )
                    }
                    .map_err(|_| format!("{} was found, but has no {}", names[0], $symbol))?;
                )+
                Ok($library { $($name,)+ _library: library })
            }
        }
    };
}
pub(crate) use functions;

/// The first of these libraries that is there.
pub(crate) fn first(names: &[&str]) -> Result<libloading::Library, String> {
    let open = |name: &&str| {
        // SAFETY: the libraries of drivers have no duties for those who load them.
        unsafe { libloading::Library::new(*name) }.ok()
    };
    names.iter().find_map(open).ok_or_else(|| format!("no {} was found", names.join(" or ")))
}
