//! Enumerators that cross the border: numbers, some of which this version names.

macro_rules! open_names {
    ($(#[$documentation:meta])* $Name:ident { $($(#[$about:meta])* $CONSTANT:ident = $value:literal, $text:literal;)* }) => {
        $(#[$documentation])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, zerocopy::FromBytes, zerocopy::IntoBytes,
            zerocopy::Immutable, zerocopy::KnownLayout,
        )]
        #[repr(transparent)]
        pub struct $Name(pub u32);

        impl $Name {
            $($(#[$about])* pub const $CONSTANT: Self = Self($value);)*

            /// Its name, if this version has one.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some($text),)*
                    _ => None,
                }
            }
        }

        impl core::fmt::Display for $Name {
            fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => formatter.pad(name),
                    None => write!(formatter, "{}", self.0),
                }
            }
        }
    };
}

pub(crate) use open_names;
