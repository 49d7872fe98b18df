//! The settings of an engine.

use std::borrow::Cow;

/// One number of a [`Config`], with its description.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// The field's name.
    pub name: &'static str,
    /// The field's documentation.
    pub meaning: &'static str,
    /// The field's unit: `bytes`, `µs`, or empty for a number of things.
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
            /// Values that replace those above on the paths of single transports.
            pub tunings: Vec<Tuning>,
        }

        impl Default for Config {
            fn default() -> Self {
                Self { $($name: $default,)* tunings: Vec::new() }
            }
        }

        impl Config {
            /// The parameters of a configuration, in the order of the fields.
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
    /// Longest message that is sent in the packet of its envelope, if the receiver has granted credit for it. It is
    /// also limited by the longest packet of the port, and by 16 KiB where packets are cheap, as in shared memory.
    eager_max: usize = 64 << 10, "bytes", 0, 1 << 20;
    /// Longest message whose bytes follow its envelope in further packets without a request by the receiver, if the
    /// receiver has granted credit for it and cannot get the bytes itself. Over ports that have puts, messages of at
    /// least `put_min` bytes are put instead.
    stream_max: usize = 256 << 10, "bytes", 0, 1 << 30;
    /// Budget for messages of at most `eager_max` bytes that cannot be sent at once: they are copied, and their sends
    /// return. A rank that is stopped or killed before such a message is sent loses it. Each message counts its bytes
    /// and 192 more. At the limit a send waits until its message has been sent. With 0, and in a rank with several
    /// lanes, every send does.
    outbox_max: usize = 1 << 20, "bytes", 0, 1 << 40;
    /// Room for short messages that travel in one packet to the same receiver, over transports where each packet needs
    /// a system call, such as tcp. A message leaves at once if the receiver has acknowledged the latest one. The
    /// messages behind it are gathered until a call waits or tests, until `bundle_delay_us` has passed, or until the
    /// room is full. Without a thread for progress (`SAMITE_PROGRESS`) only the sends of a scope are gathered, until
    /// the scope ends. Each message counts its bytes and 16 more, and longer ones than a quarter of the room are not
    /// gathered. With 0, with an `outbox_max` of 0, and in a rank with several lanes, each message has a packet of its
    /// own.
    bundle_max: usize = 4 << 10, "bytes", 0, 32 << 10;
    /// How long a gathered message waits for its packet while the program makes no call, if there is a thread for
    /// progress.
    bundle_delay_us: u64 = 100, "µs", 1, 1_000_000;
    /// Budget for messages of buffered sends that cannot be sent at once, unless they have a buffer of their own
    /// (`Comm::with_buffer`). Each message counts its bytes and 192 more. At the limit a buffered send ends with
    /// `Error::Exhausted`.
    buffer_max: usize = 64 << 20, "bytes", 0, 1 << 40;
    /// Budget for the memory in which this rank publishes data of collective operations for the ranks of its host. Each
    /// communicator of which this host has 2 to 64 ranks takes 33 KiB of it at its first barrier or similar call. At
    /// the limit, and with 0, its collective operations send messages.
    board_max: usize = 4 << 20, "bytes", 0, 1 << 40;
    /// Shortest message that the receiver reads in the sender's memory, if it is longer than `eager_max` and the
    /// receiver can map that memory.
    read_min: usize = 16 << 10, "bytes", 0, 1 << 40;
    /// Budget for data that arrives before its receive: the kept data and the unused credit of peers together. At the
    /// limit peers get no more credit, and send envelopes instead of data.
    unexpected_max: usize = 256 << 20, "bytes", 64 << 10, 1 << 40;
    /// Budget for envelopes without data that arrive before their receive. At the limit a message is refused, and its
    /// send ends with `Error::Exhausted`.
    envelopes_max: usize = 64 << 20, "bytes", 64 << 10, 1 << 40;
    /// Packets to one peer that it has not acknowledged. At the limit, messages that the peer must answer wait in this
    /// process: envelopes without data, synchronous messages, and initializations of partitioned sends. The peer keeps
    /// 1024 answers to packets of this rank, and three for each envelope of its `envelopes_max`. If more of them wait,
    /// because this rank does not take them, the peer considers this rank failed.
    announced_max: usize = 512, "", 1, 1 << 20;
    /// Credit that a peer gets at first contact. The amount doubles each time the peer runs out of credit, up to
    /// `window_max` and within `unexpected_max`.
    window_min: usize = 64 << 10, "bytes", 1 << 10, 1 << 30;
    /// Most credit that one peer may hold.
    window_max: usize = 64 << 20, "bytes", 1 << 10, 1 << 30;
    /// Longest piece that one get fetches.
    pull_chunk: usize = 1 << 20, "bytes", 4 << 10, 1 << 30;
    /// Gets of one message that are outstanding at a time.
    pull_depth: usize = 4, "", 1, 256;
    /// Shortest message that the sender puts into the receiver's memory, if it is longer than `eager_max`, the port has
    /// puts, and the receiver cannot get the bytes itself.
    put_min: usize = 64 << 10, "bytes", 1, 1 << 40;
    /// Longest piece that one put writes. The bytes of borrowed buffers are put in pieces of at most 256 KiB.
    put_chunk: usize = 1 << 20, "bytes", 4 << 10, 1 << 30;
    /// Puts of one message that are outstanding at a time. A short message to the same peer may have to wait for the
    /// bytes of that many puts.
    put_depth: usize = 3, "", 1, 256;
    /// Budget for memory that stays registered for later messages: pieces of up to 256 KiB, through which the bytes of
    /// borrowed buffers are copied, and, on networks where a registration takes time, blocks of `Heap` that were sent
    /// or received before. Over tcp a registration takes none, and blocks of `Heap` are registered for each message. At
    /// the limit the memory that was not used for the longest time is freed. If messages use all of it for borrowed
    /// buffers, others travel in packets, which need no registered memory.
    registered_max: usize = 64 << 20, "bytes", 0, 1 << 40;
    /// Bytes of one message that the receiver requests at a time if it cannot get them itself and the sender cannot put
    /// them.
    push_window: usize = 1 << 20, "bytes", 4 << 10, 1 << 30;
    /// Budget for memory of ended operations that a port may still access: after a peer's death, if the port cannot
    /// fence the peer off. The memory is kept until the port releases it. At the limit long messages over such ports
    /// travel in packets, which need no registered memory.
    quarantine_max: usize = 256 << 20, "bytes", 0, 1 << 40;
    /// Communicators that a rank may have at a time, beside that of the job. At the limit the creation of another one
    /// ends with `Error::Exhausted` at all ranks that take part. Each takes up to 256 bytes.
    communicators_max: usize = 1 << 24, "", 1, 1 << 31;
    /// Shortest message of a nonblocking operation that travels while the program computes (`SAMITE_PROGRESS`), and
    /// whose borrowed buffer is lent to all calls of the process. For shorter messages, waking a thread takes longer
    /// than the message.
    overlap_min: usize = 64 << 10, "bytes", 0, 1 << 40;
    /// How long a leaving rank waits for its peers to take the data sent to them, and for the end of its closed epochs
    /// and freed windows. For messages of the outbox it waits until the time-outs of their sends, if these end later,
    /// and without limit if a send had no time-out.
    linger_us: u64 = 10_000_000, "µs", 0, 3_600_000_000;
}

/// Values of parameters that were measured for a transport, for the paths of this transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// The transport's name: [`Caps::name`](samite_fabric::Caps::name).
    pub transport: String,
    /// The library that implements the transport.
    pub library: Library,
    /// The version of the library with which the values were measured.
    pub version: String,
    /// The names of parameters among [`Tuning::PARAMETERS`], and their values.
    pub values: Vec<(&'static str, u64)>,
}

impl Tuning {
    /// The parameters that may differ between transports.
    pub const PARAMETERS: [&str; 7] =
        ["eager_max", "stream_max", "bundle_max", "read_min", "pull_chunk", "put_min", "put_chunk"];
}

/// The library that implements a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// libfabric.
    Libfabric,
    /// Samite itself.
    Samite,
}

impl Library {
    /// All libraries.
    pub const ALL: [Self; 2] = [Self::Libfabric, Self::Samite];

    /// Returns the library's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Libfabric => "libfabric",
            Self::Samite => "samite",
        }
    }
}

impl Config {
    /// Returns the configuration for the paths of a transport.
    #[must_use]
    pub fn on(&self, transport: &str) -> Cow<'_, Self> {
        let mut config = Cow::Borrowed(self);
        for tuning in self.tunings.iter().filter(|tuning| tuning.transport == transport) {
            for (name, value) in &tuning.values {
                let parameter = Self::PARAMETERS.iter().find(|parameter| parameter.name == *name);
                debug_assert!(
                    parameter.is_some_and(|found| (found.min..=found.max).contains(value)),
                    "{name}"
                );
                if let Some(parameter) = parameter {
                    (parameter.set)(config.to_mut(), *value);
                }
            }
        }
        config
    }

    /// Returns the greatest `eager_max` of any path.
    pub(crate) fn eager_max_of_all(&self) -> usize {
        let values = self.tunings.iter().flat_map(|tuning| &tuning.values);
        let tuned = values.filter(|(name, _)| *name == "eager_max").map(|(_, value)| *value as usize);
        tuned.fold(self.eager_max, usize::max)
    }

    /// Returns the link's part of the configuration.
    pub(crate) fn link(&self) -> samite_fabric::link::Config {
        samite_fabric::link::Config {
            credit_max: self.unexpected_max as u64,
            window_min: self.window_min as u64,
            window_max: self.window_max as u64,
            questions_max: self.announced_max as u32,
            answers_max: ANSWERS_MIN + ANSWERS_EACH * (self.envelopes_max / OVERHEAD),
            quarantine_max: self.quarantine_max as u64,
            registered_max: self.registered_max as u64,
            gathered_max: self.outbox_max as u64,
            gathered_ns: self.bundle_delay_us * 1000,
        }
    }
}

/// The number of answers that may wait for a peer that takes none, for each envelope within the budget. These answers
/// are for two messages, one from the peer and one to the peer. The message from the peer needs two answers: a request
/// for the bytes, and FIN if the receive gives up. The message to the peer needs one answer, REVOKE or ABORT, if the
/// send gives up.
const ANSWERS_EACH: usize = 3;

/// Number of answers that may wait for a peer, beside those for envelopes within the budget. These answers are for
/// messages that were refused, or matched at once: `announced_max` at the peer limits their number.
const ANSWERS_MIN: usize = 1024;

/// The assumed cost of one waiting message beyond its bytes, in the budgets above: the matching engine's entry and the
/// buffer's own header.
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

    #[test]
    fn a_tuning_changes_the_paths_of_its_transport() {
        let tuning = Tuning {
            transport: "t".to_owned(),
            library: Library::Samite,
            version: "1".to_owned(),
            values: vec![("eager_max", 7), ("put_min", 9)],
        };
        let config = Config { tunings: vec![tuning], stream_max: 5, ..Config::default() };
        let tuned = config.on("t");
        assert_eq!((tuned.eager_max, tuned.put_min, tuned.stream_max), (7, 9, 5));
        assert_eq!(*config.on("other"), config);
    }
}
