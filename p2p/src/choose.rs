//! The choice of how a message travels: as an eager message, or by one of the transfer modes stream, pull, put and
//! push. The choice is a pure function of the message's size, its memory, the kind of its send, the path, and the
//! credit. A message whose memory is exposed is read by its receiver, and needs no choice.
//!
//! The public names [`Protocols`] and [`protocols`] speak of protocols as other libraries do: a protocol there is a way
//! in which a message travels, and not a state machine on the link.

use samite_fabric::wire::Header;
use samite_fabric::{Caps, Order, Reach};

use crate::config::{Config, OVERHEAD};
use crate::wire::{Data, Eager, PartData, Synchronous};

/// The limits of a path that decide how messages travel on it. They are computed once for each path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Longest message in one packet.
    pub(crate) eager_max: usize,
    /// Longest message in one packet if the send ends with the match (a synchronous or ready send), or if the message
    /// has a signature.
    pub(crate) sync_max: usize,
    /// The largest number of bytes in a bundle; 0 if messages are never gathered.
    pub(crate) bundle_max: usize,
    /// Longest message that is sent as a stream: its bytes follow its envelope without a request by the receiver.
    pub(crate) stream_max: usize,
    /// Shortest message that is exposed to its receiver, if the memory allows that.
    pub(crate) read_min: usize,
    /// The largest number of bytes of a message in one DATA or STREAM packet.
    pub(crate) data_max: usize,
    /// The largest number of bytes of partitions in one PART_DATA packet.
    pub(crate) part_max: usize,
    /// True if the port has gets ([`Port::get`](samite_fabric::Port::get)).
    pub(crate) get: bool,
    /// The largest number of bytes that one get fetches.
    pub(crate) get_max: usize,
    /// True if the port has puts ([`Port::put`](samite_fabric::Port::put)), and can end a peer's access to the memory
    /// that they reach.
    pub(crate) put: bool,
    /// Shortest message that is put into the receiver's memory.
    pub(crate) put_min: usize,
    /// Longest put.
    pub(crate) put_max: usize,
    /// True if a packet that is sent after a put arrives after the put's bytes.
    pub(crate) send_after_put: bool,
    /// True if memory is safe to reuse once a peer is fenced.
    pub(crate) fence: bool,
}

/// The longest eager message where packets are cheap: the receiver copies the first packets of a longer one while the
/// sender writes the next.
const CHEAP_EAGER_MAX: usize = 16 << 10;

impl Limits {
    pub(crate) fn new(caps: &Caps, config: &Config) -> Self {
        let config = &*config.on(&caps.name);
        debug_assert!((512..=caps.packet_max).contains(&caps.fragment_max), "{caps:?}");
        let eager_max = config.eager_max.min(caps.packet_max - Header::LEN - size_of::<Eager>());
        let eager_max = if caps.dear_packets { eager_max } else { eager_max.min(CHEAP_EAGER_MAX) };
        Self {
            eager_max,
            sync_max: eager_max.min(caps.packet_max - Header::LEN - size_of::<Synchronous>()),
            bundle_max: if caps.dear_packets {
                config.bundle_max.min(caps.packet_max - Header::LEN)
            } else {
                0
            },
            stream_max: config.stream_max,
            read_min: config.read_min.max(eager_max + 1),
            data_max: (caps.fragment_max - Header::LEN - size_of::<Data>()) / LINE * LINE,
            part_max: (caps.fragment_max - Header::LEN - size_of::<PartData>()) / LINE * LINE,
            get: caps.get == Reach::Any && caps.rma_max > 0,
            get_max: config.pull_chunk.min(caps.rma_max).max(1),
            put: caps.put == Reach::Any && caps.rma_max > 0 && caps.fence,
            put_min: config.put_min.max(eager_max + 1),
            put_max: config.put_chunk.min(caps.rma_max).max(1),
            send_after_put: caps.order.contains(Order::SEND_AFTER_PUT),
            fence: caps.fence,
        }
    }
}

/// Bytes of a cache line. Copies that start at a multiple of this length are fastest.
const LINE: usize = 64;

/// The way in which a message travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The bytes are in the packet of the envelope.
    Eager,
    /// Nothing is sent yet: the sender waits for credit.
    Wait,
    /// The envelope is sent first, and the bytes follow in further packets, without a request by the receiver.
    Stream,
    /// The envelope is sent first. The receiver fetches the bytes by gets.
    Pull,
    /// The envelope is sent first. The receiver offers memory, and the sender puts the bytes there.
    Put,
    /// The envelope is sent first. The receiver requests the bytes, and the sender sends them in packets.
    Push,
}

/// The ways in which messages of a range of lengths travel on a path, as long as the receiver grants credit and does
/// not read them in exposed memory. A way is `eager`, `stream`, `pull`, `put` or `push`. Blocking and nonblocking sends
/// travel alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocols {
    /// The length of the shortest of these messages in bytes.
    pub from: usize,
    /// The length of the longest of these messages in bytes; `None` if there is no limit.
    pub to: Option<usize>,
    /// How a message travels whose buffer the engine owns.
    pub owned: &'static str,
    /// How a message with a lent buffer travels.
    pub borrowed: &'static str,
    /// How a message of a synchronous send travels whose buffer the engine owns.
    pub owned_synchronous: &'static str,
    /// How a message of a synchronous send with a lent buffer travels.
    pub borrowed_synchronous: &'static str,
}

impl Protocols {
    /// Returns true if the messages of both ranges travel alike.
    fn is_like(&self, other: &Self) -> bool {
        let ways = |of: &Self| [of.owned, of.borrowed, of.owned_synchronous, of.borrowed_synchronous];
        ways(self) == ways(other)
    }
}

/// Returns how messages travel over a path with these capabilities, for each range of lengths.
#[must_use]
pub fn protocols(caps: &Caps, config: &Config) -> Vec<Protocols> {
    let limits = Limits::new(caps, config);
    let streamed = limits.stream_max.max(limits.eager_max);
    let mut starts = vec![0, limits.sync_max + 1, limits.eager_max + 1, streamed + 1];
    if limits.put {
        starts.push(limits.put_min);
    }
    starts.sort_unstable();
    starts.dedup();
    let ends = starts[1..].iter().map(|next| Some(next - 1)).chain([None]);
    let bands = starts.iter().copied().zip(ends).map(|(from, to)| {
        let way = |owned, synchronous| match choose(from, &limits, u32::MAX, false, owned, synchronous) {
            Choice::Eager => "eager",
            Choice::Wait => "wait",
            Choice::Stream => "stream",
            Choice::Pull => "pull",
            Choice::Put => "put",
            Choice::Push => "push",
        };
        Protocols {
            from,
            to,
            owned: way(true, false),
            borrowed: way(false, false),
            owned_synchronous: way(true, true),
            borrowed_synchronous: way(false, true),
        }
    });
    let mut bands: Vec<_> = bands.collect();
    bands.dedup_by(|next, band| {
        let is_like = next.is_like(band);
        if is_like {
            band.to = next.to;
        }
        is_like
    });
    bands
}

/// A threshold of a path, which comes from a parameter of the [`Config`] unless the path limits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// The parameter's name.
    pub parameter: &'static str,
    /// The threshold in bytes.
    pub bytes: usize,
    /// The reason why the threshold is not the value of the parameter.
    pub limit: Option<&'static str>,
}

/// Returns the thresholds that decide how messages travel over a path with these capabilities.
#[must_use]
pub fn thresholds(caps: &Caps, config: &Config) -> Vec<Threshold> {
    let (limits, config) = (Limits::new(caps, config), config.on(&caps.name));
    let (packet, operation) = ("the longest packet of the port", "the longest operation of the port");
    let above = "more than eager_max";
    let eager =
        if limits.eager_max == CHEAP_EAGER_MAX { "longer messages gain by several packets" } else { packet };
    let maps_memory = caps.get == Reach::Shared;
    let all = [
        ("eager_max", limits.eager_max, config.eager_max, eager, true),
        ("bundle_max", limits.bundle_max, config.bundle_max, packet, caps.dear_packets),
        ("read_min", limits.read_min, config.read_min, above, maps_memory),
        ("stream_max", limits.stream_max, config.stream_max, "", true),
        ("pull_chunk", limits.get_max, config.pull_chunk, operation, limits.get),
        ("put_min", limits.put_min, config.put_min, above, limits.put),
        ("put_chunk", limits.put_max, config.put_chunk, operation, limits.put),
    ];
    let applicable = all.into_iter().filter(|(.., is_used)| *is_used);
    let threshold = |(parameter, bytes, wanted, limit, _)| Threshold {
        parameter,
        bytes,
        limit: (bytes != wanted).then_some(limit),
    };
    applicable.map(threshold).collect()
}

/// Returns the reason why long messages are not put into the receiver's memory, over a port whose peers cannot map each
/// other's memory. Returns `None` if they are put or got.
#[must_use]
pub fn why_no_puts(caps: &Caps) -> Option<&'static str> {
    match () {
        () if caps.get != Reach::None || caps.put == Reach::Shared => None,
        () if caps.put == Reach::None => Some("it has no puts"),
        () if !caps.fence => Some("it cannot end a failed peer's access to memory (no fence)"),
        () => None,
    }
}

/// Returns the credit that a message of `len` bytes needs if it is sent eagerly or as a stream.
#[inline]
pub(crate) fn cost(len: usize) -> u32 {
    // The length is far below the range of the counters: `Config::stream_max` is at most 1 GiB.
    (len + OVERHEAD) as u32
}

/// Returns how a message travels. `exhausted` means that the receiver can grant no more credit for now; `owned` that
/// the port may access the bytes until the receiver has them; `synchronous` that the send ends with the match.
pub(crate) fn choose(
    len: usize,
    limits: &Limits,
    credit: u32,
    exhausted: bool,
    owned: bool,
    synchronous: bool,
) -> Choice {
    if synchronous && len > limits.sync_max {
        // A stream is not possible: the send of a stream ends when the bytes are sent, and would not wait for the
        // match.
        return match () {
            () if owned && limits.get && len > limits.eager_max => Choice::Pull,
            () if limits.put && len >= limits.put_min => Choice::Put,
            () => Choice::Push,
        };
    }
    if len <= limits.eager_max {
        match exhausted {
            _ if credit >= cost(len) => Choice::Eager,
            false => Choice::Wait,
            // Not a pull: registering the memory of so short a message costs more than the packets of a push.
            true => Choice::Push,
        }
    } else if owned && limits.get {
        Choice::Pull
    } else if limits.put && len >= limits.put_min {
        Choice::Put
    } else if len <= limits.stream_max && credit >= cost(len) {
        Choice::Stream
    } else {
        Choice::Push
    }
}

#[cfg(test)]
mod tests {
    use samite_fabric::Port;
    use samite_fabric::loopback::Hub;

    use super::*;
    use crate::config::{Library, Tuning};

    #[test]
    fn thresholds_have_their_reason() {
        let caps = Caps {
            name: "t".to_owned(),
            get: Reach::None,
            dear_packets: true,
            ..Hub::new().port().caps().clone()
        };
        let caps = Caps { packet_max: 2000, fragment_max: 2000, fence: true, ..caps };
        let values = vec![("put_min", 5000), ("put_chunk", 7000)];
        let tuning =
            Tuning { transport: "t".to_owned(), library: Library::Samite, version: "1".to_owned(), values };
        let config = Config { eager_max: 4000, put_min: 1, tunings: vec![tuning], ..Config::default() };
        let of = |name: &str| thresholds(&caps, &config).into_iter().find(|found| found.parameter == name);
        let eager_max = of("eager_max").unwrap();
        assert!(eager_max.bytes < 2000 && eager_max.limit == Some("the longest packet of the port"));
        for (parameter, bytes) in [("put_min", 5000), ("put_chunk", 7000), ("stream_max", config.stream_max)]
        {
            assert_eq!(of(parameter), Some(Threshold { parameter, bytes, limit: None }));
        }
        assert_eq!((of("read_min"), of("pull_chunk")), (None, None));
        assert_eq!(why_no_puts(&caps), None);
        assert!(why_no_puts(&Caps { fence: false, ..caps.clone() }).is_some_and(|why| why.contains("fence")));

        let bands = protocols(&caps, &config);
        let last = bands.last().unwrap();
        assert_eq!((last.owned, last.borrowed, last.owned_synchronous), ("put", "put", "put"));
        let sync = bands.iter().find(|band| band.owned != band.owned_synchronous).unwrap();
        assert_eq!((sync.to, sync.owned, sync.owned_synchronous), (Some(eager_max.bytes), "eager", "push"));
        assert!(bands.windows(2).all(|pair| pair[0].to.map(|to| to + 1) == Some(pair[1].from)));
    }

    #[test]
    fn the_table_of_choices() {
        let (eager_max, stream_max, read_min, data_max, get_max) = (1000, 2000, 1001, 1000, 1 << 20);
        let (sync_max, part_max, get, fence) = (984, data_max, true, true);
        let (put, put_min, put_max, send_after_put) = (false, 1500, 1 << 20, true);
        let limits = Limits {
            eager_max,
            sync_max,
            bundle_max: 0,
            stream_max,
            read_min,
            data_max,
            part_max,
            get,
            get_max,
            put,
            put_min,
            put_max,
            send_after_put,
            fence,
        };
        let without = Limits { get: false, ..limits };
        let puts = Limits { put: true, ..without };
        let rich = u32::MAX / 2;
        for (len, limits, credit, exhausted, owned, choice) in [
            (0, limits, rich, false, false, Choice::Eager),
            (1000, limits, cost(1000), true, false, Choice::Eager),
            (1000, limits, cost(1000) - 1, false, true, Choice::Wait),
            (1000, limits, cost(1000) - 1, true, true, Choice::Push),
            (0, limits, 0, true, false, Choice::Push),
            (1001, limits, rich, false, true, Choice::Pull),
            (1001, limits, rich, false, false, Choice::Stream),
            (1001, without, rich, false, true, Choice::Stream),
            (2000, without, cost(2000), true, true, Choice::Stream),
            (2000, without, cost(2000) - 1, false, true, Choice::Push),
            (2001, limits, rich, false, false, Choice::Push),
            (1499, puts, rich, false, true, Choice::Stream),
            (1500, puts, rich, false, true, Choice::Put),
            (1500, puts, 0, true, false, Choice::Put),
            (2001, Limits { put: true, ..limits }, rich, false, true, Choice::Pull),
        ] {
            let chosen = choose(len, &limits, credit, exhausted, owned, false);
            assert_eq!(chosen, choice, "{len} bytes, credit {credit}, exhausted {exhausted}, owned {owned}");
        }
        for (len, limits, credit, exhausted, owned, choice) in [
            (0, limits, rich, false, false, Choice::Eager),
            (984, limits, cost(984), false, true, Choice::Eager),
            (984, limits, cost(984) - 1, false, true, Choice::Wait),
            (984, limits, cost(984) - 1, true, true, Choice::Push),
            (985, limits, rich, false, true, Choice::Push),
            (1001, limits, rich, false, true, Choice::Pull),
            (1001, limits, rich, false, false, Choice::Push),
            (2000, without, rich, false, true, Choice::Push),
            (1500, puts, rich, false, false, Choice::Put),
        ] {
            let chosen = choose(len, &limits, credit, exhausted, owned, true);
            assert_eq!(chosen, choice, "{len} bytes, credit {credit}, exhausted {exhausted}, owned {owned}");
        }
    }
}
