//! The settings of an engine.

/// One number of a [`Config`], with its description.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// The field's name.
    pub name: &'static str,
    /// The field's documentation.
    pub meaning: &'static str,
    /// Its unit: `bytes`, `µs`, or empty for a number of things.
    pub unit: &'static str,
    /// The least valid value.
    pub min: u64,
    /// The greatest valid value.
    pub max: u64,
    /// Reads the field.
    pub get: fn(&Config) -> u64,
    /// Writes the field; the value must be within the range.
    pub set: fn(&mut Config, u64),
}

/// Declares the configuration once: the structure, its defaults, and the table of its parameters.
macro_rules! parameters {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident: $type:ty = $default:expr, $unit:literal, $min:expr, $max:expr;
    )*) => {
        /// Limits and thresholds of an [`Engine`](crate::Engine).
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Config {
            $($(#[doc = $doc])+ pub $name: $type,)*
        }

        impl Default for Config {
            fn default() -> Self {
                Self { $($name: $default,)* }
            }
        }

        impl Config {
            /// Its parameters, in the order of the fields.
            pub const PARAMETERS: &[Parameter] = &[$(Parameter {
                name: stringify!($name),
                meaning: concat!($($doc),+).trim_ascii_start(),
                unit: $unit,
                min: $min,
                max: $max,
                get: |config| config.$name as u64,
                set: |config, value| config.$name = value as $type,
            }),*];
        }
    };
}

parameters! {
    /// Longest message that is sent at once with its envelope, if the receiver has granted credit for it;
    /// what one packet carries is the upper bound.
    eager_max: usize = 16 << 10, "bytes", 0, 1 << 20;
    /// Longest message whose bytes are sent right behind its envelope, in as many packets as it takes, if the receiver
    /// has granted credit for it and does not get them.
    stream_max: usize = 256 << 10, "bytes", 0, 1 << 30;
    /// Shortest message whose receiver reads the bytes where they are, if it is above `eager_max` and lies in memory
    /// that the receiver can map.
    read_min: usize = 16 << 10, "bytes", 0, 1 << 40;
    /// Budget for data that arrived before its receive: what is held and what peers may still send, together.
    /// At the limit peers get no more credit, and their messages wait with them, announced by envelopes.
    unexpected_max: usize = 256 << 20, "bytes", 64 << 10, 1 << 40;
    /// Budget for envelopes without data that arrived before their receive. At the limit a message is
    /// refused, and its send ends with `Error::Exhausted`. As many answers as fit wait for a peer to take
    /// them; one that asks for more and takes none has failed.
    envelopes_max: usize = 64 << 20, "bytes", 64 << 10, 1 << 40;
    /// Credit a peer gets at first contact; doubles each time it runs out of it, within `unexpected_max`.
    window_min: usize = 64 << 10, "bytes", 1 << 10, 1 << 30;
    /// Most credit that one peer may hold.
    window_max: usize = 64 << 20, "bytes", 1 << 10, 1 << 30;
    /// Longest piece that is fetched by one get.
    pull_chunk: usize = 1 << 20, "bytes", 4 << 10, 1 << 30;
    /// Gets that one message has outstanding.
    pull_depth: usize = 4, "", 1, 256;
    /// Bytes of one message that the receiver calls for at a time where it cannot get them.
    push_window: usize = 1 << 20, "bytes", 4 << 10, 1 << 30;
    /// Budget for memory of operations that are over, but not for their port: after a peer's death, where the port
    /// cannot fence it off. It is kept, and nobody's. At the limit long messages over such ports go in packets, which
    /// leave none behind.
    quarantine_max: usize = 256 << 20, "bytes", 0, 1 << 40;
    /// How long to wait at the end for peers to take what was sent to them.
    linger_us: u64 = 10_000_000, "µs", 0, 3_600_000_000;
}

impl Config {
    /// Returns the link's part of it.
    pub(crate) fn link(&self) -> samite_fabric::link::Config {
        samite_fabric::link::Config {
            credit_max: self.unexpected_max as u64,
            window_min: self.window_min as u64,
            window_max: self.window_max as u64,
            answers_max: ANSWERS_MIN.max(self.envelopes_max / OVERHEAD),
            quarantine_max: self.quarantine_max as u64,
        }
    }
}

/// Number of answers that a peer may leave untaken, however small the budget for envelopes.
const ANSWERS_MIN: usize = 1024;

/// The assumed cost of one waiting message beyond its bytes, in the budgets above: the
/// matching engine's entry and the buffer's own header.
pub(crate) const OVERHEAD: usize = 96;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_within_their_ranges_and_each_is_its_own() {
        let mut config = Config::default();
        for (place, parameter) in Config::PARAMETERS.iter().enumerate() {
            let value = (parameter.get)(&config);
            assert!((parameter.min..=parameter.max).contains(&value), "{}", parameter.name);
            assert!(parameter.meaning.ends_with('.'), "{}", parameter.meaning);
            (parameter.set)(&mut config, place as u64);
        }
        let all = Config::PARAMETERS.iter().map(|parameter| (parameter.get)(&config));
        assert!(all.eq(0..Config::PARAMETERS.len() as u64));
    }
}
