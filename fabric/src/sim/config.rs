//! Parameters of a simulated network.

use crate::{Caps, Order, Reach, SplitMix64};

/// The parameters of a simulated network. [`Config::default`] is fast and without faults. [`Config::adverse`] has
/// random delays and faults.
#[derive(Clone, Debug)]
pub struct Config {
    /// The claims and limits of every port. A property that is not claimed is violated sooner or
    /// later.
    pub caps: Caps,
    /// The costs of operations.
    pub costs: Costs,
    /// The maximum random time that is added to the delay of a message, unless a spike is added instead: see
    /// [`Config::spikes_per_million`].
    pub jitter_ns: u64,
    /// The number of messages in a million that are delayed by up to [`Config::spike_ns`], instead of `jitter_ns`.
    pub spikes_per_million: u32,
    /// The maximum delay of the messages that [`Config::spikes_per_million`] counts.
    pub spike_ns: u64,
    /// The largest number of packets from one rank to another that are under way, or have arrived and were not polled.
    /// At the limit a post returns [`Post::Again`](crate::Post::Again).
    pub channel_depth: usize,
    /// The number of posts in a million that start a period in which the port answers every post with
    /// [`Post::Again`](crate::Post::Again).
    pub storms_per_million: u32,
    /// The maximum duration of a period in which the port answers every post with [`Post::Again`](crate::Post::Again).
    pub storm_ns: u64,
    /// The maximum delay of the report of a completion.
    pub completion_delay_ns: u64,
    /// The largest number of events in one poll.
    pub poll_batch: usize,
    /// The largest number of registrations of one port. At the limit a registration fails.
    pub registrations_max: usize,
    /// The port's reaction to a peer's death.
    pub death: Death,
    /// True if packets that are under way to a rank when it is killed and restarted reach its next incarnation, as with
    /// a provider that identifies peers by address alone.
    pub stale: bool,
    /// The largest number of exposures of all ports together. It is 0 if ports cannot expose memory.
    pub exposures_max: usize,
    /// True if ports can read exposed memory. Otherwise a read reports that the memory is out of reach.
    pub reads: bool,
    /// True if each incarnation of a rank has a new address, like a process that listens at any free port of the
    /// network.
    pub moves: bool,
}

/// The parameters of the LogGP model (Alexandrov et al., SPAA 1995).
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// L: the time from the end of the send to the arrival.
    pub latency_ns: u64,
    /// o: the processor time for a message, spent once at each end.
    pub overhead_ns: u64,
    /// g: the smallest time from the last byte of a message to the start of the same rank's next message.
    pub gap_ns: u64,
    /// G: the time for every byte.
    pub gap_per_byte_ps: u64,
    /// The processor time for a registration of memory, during which the rank sends nothing.
    pub registration_ns: u64,
}

/// A port's reaction to a peer's death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// The port reports the death by [`Sink::peer_lost`](crate::Sink::peer_lost), after at most this delay.
    Told {
        /// The delay in nanoseconds.
        delay_ns: u64,
    },
    /// The port does not notice the death: posts return [`Post::Again`](crate::Post::Again) for ever. If another
    /// process starts at the address, the posts reach that process.
    Silent,
}

/// The effect of a network cut on packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cut {
    /// Packets are lost without a report: after healing, a stream continues with a gap, as with a provider that
    /// reconnects.
    Drop,
    /// Packets wait until the network heals.
    Stall,
}

impl Config {
    /// Returns a network with random limits, claims and faults, all of which the contract of a port permits.
    #[must_use]
    pub fn adverse(rng: &mut SplitMix64) -> Self {
        // Parameters that were added later have random numbers of their own, so that the other parameters of a seed
        // stay the same.
        let mut later = SplitMix64::new(!rng.clone().next_u64());
        let one_sided = rng.below(4);
        let (put, get) = (one_sided & 1 == 0, one_sided & 2 == 0);
        let packet_max = pick(rng, [512, 777, 1024, 4096, 16 << 10]);
        let rma_max = pick(rng, [1000, 4096, 64 << 10, 1 << 20]);
        let (stale, moves) = pick(rng, [(true, false), (false, false), (false, true), (false, true)]);
        let caps = Caps {
            name: "sim".into(),
            short_max: pick(rng, [0, 64, 256]),
            packet_max,
            fragment_max: pick(rng, [packet_max, packet_max / 3]).max(512),
            zcopy_max: pick(rng, [0, packet_max, 64 << 10]),
            rma_max: if put || get { rma_max } else { 0 },
            put_bytes_max: if put { pick(&mut later, [8, 64, 1000, packet_max]).min(rma_max) } else { 0 },
            get_bytes_max: 0,
            iov_max: if put { pick(&mut later, [1, 2, 4, 16]) } else { 0 },
            rma_depth: if put || get { pick(rng, [1, 2, 5, 64]) } else { 0 },
            put: Reach::Any.when(put),
            get: Reach::Any.when(get),
            change: Reach::Any.when(put && get),
            immediate_bits: if put { pick(rng, [0, 8, 32, 64]) } else { 0 },
            order: Order::SEND_AFTER_SEND
                | Order::from_bits_truncate(rng.below(8) as u8)
                | Order::from_bits_truncate((later.below(16) << 3) as u8),
            map: false,
            passive: rng.below(2) != 0,
            fence: rng.below(2) == 0,
            peers_max: usize::MAX,
            dear_packets: false,
        };
        let registrations_max = pick(&mut later, [usize::MAX, usize::MAX, 8, 3, 1, 0]);
        let caps = Caps { dear_packets: later.below(2) == 0, ..caps };
        let caps = Caps { map: later.below(2) == 0, ..caps };
        Self {
            caps,
            jitter_ns: pick(rng, [0, 100, 2_000, 50_000]),
            spikes_per_million: pick(rng, [0, 1_000, 50_000]),
            spike_ns: pick(rng, [10_000, 1_000_000]),
            channel_depth: pick(rng, [1, 2, 8, 64]),
            storms_per_million: pick(rng, [0, 1_000, 20_000, 200_000]),
            storm_ns: pick(rng, [1_000, 100_000]),
            completion_delay_ns: pick(rng, [0, 1_000, 200_000]),
            poll_batch: pick(rng, [1, 4, 64]),
            registrations_max,
            death: pick(rng, [Death::Silent, Death::Told { delay_ns: 20_000 }]),
            stale,
            moves,
            exposures_max: pick(rng, [0, 0, 1, 3, 1000]),
            reads: rng.below(4) > 0,
            ..Self::default()
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            caps: Caps {
                name: "sim".into(),
                short_max: 256,
                packet_max: 8 << 10,
                fragment_max: 8 << 10,
                zcopy_max: 64 << 10,
                rma_max: 1 << 20,
                put_bytes_max: 8 << 10,
                get_bytes_max: 0,
                iov_max: 4,
                rma_depth: 256,
                put: Reach::Any,
                get: Reach::Any,
                change: Reach::Any,
                immediate_bits: 32,
                order: Order::all(),
                map: false,
                passive: true,
                fence: true,
                peers_max: usize::MAX,
                dear_packets: false,
            },
            costs: Costs {
                latency_ns: 1_000,
                overhead_ns: 100,
                gap_ns: 50,
                gap_per_byte_ps: 100,
                registration_ns: 0,
            },
            jitter_ns: 0,
            spikes_per_million: 0,
            spike_ns: 0,
            channel_depth: 64,
            storms_per_million: 0,
            storm_ns: 0,
            completion_delay_ns: 0,
            poll_batch: 64,
            registrations_max: usize::MAX,
            death: Death::Told { delay_ns: 0 },
            stale: false,
            moves: false,
            exposures_max: 0,
            reads: true,
        }
    }
}

fn pick<T, const N: usize>(rng: &mut SplitMix64, choices: [T; N]) -> T {
    let index = rng.below(N as u64) as usize;
    choices.into_iter().nth(index).expect("below(N) is below N")
}
