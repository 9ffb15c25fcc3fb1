//! Driver libraries, loaded at run time.

/// Defines a struct of the functions of a library: name in Rust, symbol, type. `open` loads the
/// library, which stays loaded as long as the struct lives.
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
            /// Loads the first available library. The error names the libraries, or the function
            /// that is missing.
            pub(super) fn open(names: &[&str]) -> Result<$library, String> {
                let library = $crate::library::first(names)?;
                $(
                    // SAFETY: the driver's documentation gives the function this type.
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

/// Loads the first available library.
pub(crate) fn first(names: &[&str]) -> Result<libloading::Library, String> {
    let open = |name: &&str| {
        // SAFETY: the initialisers of driver libraries have no preconditions.
        unsafe { libloading::Library::new(*name) }.ok()
    };
    names.iter().find_map(open).ok_or_else(|| format!("no {} was found", names.join(" or ")))
}
