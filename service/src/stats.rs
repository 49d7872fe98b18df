//! A rank's counters and state, for people and for monitors.

use std::fmt::Write;

use samite_fabric::Port;
use samite_p2p::{Traffic, WorldRank};
use samite_rma::Windows;
use serde::Serialize;

use crate::select::Rank;
use crate::stack::Engine;

/// The counters of a process since its start, and its present state: see [`Comm::stats`](crate::Comm::stats).
///
/// serde serializes it as an object with the names of these fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// The rank.
    pub rank: Rank,
    /// The rank's peers, by rank; the rank itself may be among them.
    pub peers: Vec<PeerStats>,
    /// Envelopes that the rank refused for lack of budget.
    pub refused: u64,
    /// Messages that were not delivered although their sends had returned: their receiver failed or left, or its
    /// receive ended early, or this rank left before it had received its own messages to itself.
    pub lost: u64,
    /// Packets that the rank refused: malformed packets, and packets of unauthenticated processes.
    pub rejected: u64,
    /// Packets about operations that had ended.
    pub stale: u64,
    /// Times that the transport had no room.
    pub again: u64,
    /// Peers that failed.
    pub failed_peers: u64,
    /// Times that the system refused a thread for progress between the program's calls
    /// ([`Progress`](crate::Progress)). The program's calls make the progress then.
    pub threads_refused: u64,
    /// Communicators whose ranks on this host share a board for collective operations now.
    pub boards: usize,
    /// Communicators that use messages because this rank had no room for a board: see
    /// [`Settings::set_board_max`](crate::Settings::set_board_max).
    pub boards_refused: u64,
    /// Times that memory was registered for access by the network.
    pub registrations: u64,
    /// Bytes of the memory that stays registered for later messages: see
    /// [`Settings::set_registered_max`](crate::Settings::set_registered_max).
    pub registered_bytes: u64,
    /// Bytes of this memory that messages use now.
    pub registered_bytes_used: u64,
    /// Requests that have not ended, or whose results were not returned to the program yet.
    pub requests: usize,
    /// Packets and messages that wait for room or credit now.
    pub queued: usize,
    /// Memory in bytes of the messages that wait to be sent although their sends have returned: messages in the outbox
    /// ([`Comm::send`](crate::Comm::send)) and in the buffers of buffered sends.
    pub outbox_bytes: u64,
    /// Messages that wait for their receive now.
    pub unexpected_messages: usize,
    /// The largest number of messages that waited for their receive at a time.
    pub unexpected_max: u64,
    /// Memory in bytes of the messages that wait for their receive now.
    pub unexpected_bytes: u64,
    /// Time spent waiting in calls without progress, nanoseconds, over all threads. Waits of some
    /// microseconds are not measured.
    pub waited_ns: u64,
    /// The rank's windows.
    pub windows: WindowStats,
}

/// The counters of the windows of a process, and their present state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WindowStats {
    /// Windows that the rank has not freed, or that other ranks have not freed.
    pub open: usize,
    /// Operations that the rank has sent in packets.
    pub operations: u64,
    /// Operations that the rank has carried out on memory which it shares with their target.
    pub mapped_operations: u64,
    /// Operations whose elements the rank has written directly to registered memory of their target.
    pub put_operations: u64,
    /// Operations whose elements the rank has read directly from registered memory of their target, or that the target
    /// has written directly to registered memory of the rank.
    pub get_operations: u64,
    /// Bytes that packets have written to the rank's parts.
    pub bytes_written: u64,
    /// Bytes that packets have read from the rank's parts.
    pub bytes_read: u64,
    /// Epochs that have completed.
    pub epochs: u64,
    /// The number of these epochs that have travelled as one packet
    /// ([`WindowHints::aggregate`](crate::WindowHints::aggregate)).
    pub aggregated_epochs: u64,
    /// Locks of the rank's parts that were granted by packets.
    pub locks: u64,
    /// Exclusive locks that the rank has taken by an atomic instruction, in memory that it shares with their target.
    pub mapped_locks: u64,
    /// Bytes of the operations that wait inside the library for their epoch or its target now.
    pub recorded_bytes: u64,
    /// Requests of other ranks for windows that do not exist yet, and that were refused because too many wait.
    pub refused: u64,
    /// Regions that the rank has attached to dynamic windows, and that it has not detached.
    pub regions: usize,
    /// Packets of operations on memory that the rank has not attached to a dynamic window. They had no effect.
    pub missed: u64,
}

impl WindowStats {
    fn of(windows: &Windows) -> Self {
        let samite_rma::Counters {
            operations,
            mapped,
            put,
            got,
            written,
            read,
            epochs,
            aggregated,
            locks,
            mapped_locks,
            refused,
            missed,
        } = *windows.counters();
        Self {
            open: windows.count(),
            operations,
            mapped_operations: mapped,
            put_operations: put,
            get_operations: got,
            bytes_written: written,
            bytes_read: read,
            epochs,
            aggregated_epochs: aggregated,
            locks,
            mapped_locks,
            recorded_bytes: windows.recorded() as u64,
            refused,
            regions: windows.attached_count(),
            missed,
        }
    }

    /// Returns the number of operations that the rank has carried out in any way.
    #[must_use]
    pub fn all_operations(&self) -> u64 {
        self.operations + self.mapped_operations + self.put_operations + self.get_operations
    }

    /// Returns the samples of [`Stats::to_prometheus`]: name, type, help and value.
    fn samples(&self) -> [Sample; 15] {
        [
            ("windows", "gauge", "Windows that are not freed", self.open as u64),
            ("window_operations_total", "counter", "Operations on windows sent in packets", self.operations),
            (
                "window_operations_mapped_total",
                "counter",
                "Operations on windows in shared memory",
                self.mapped_operations,
            ),
            (
                "window_operations_put_total",
                "counter",
                "Operations on windows written directly to registered memory",
                self.put_operations,
            ),
            (
                "window_operations_get_total",
                "counter",
                "Operations on windows read directly from registered memory",
                self.get_operations,
            ),
            (
                "window_bytes_written_total",
                "counter",
                "Bytes of this rank's windows that packets have written",
                self.bytes_written,
            ),
            (
                "window_bytes_read_total",
                "counter",
                "Bytes of this rank's windows that packets have read",
                self.bytes_read,
            ),
            ("window_epochs_total", "counter", "Epochs that have completed", self.epochs),
            (
                "window_epochs_aggregated_total",
                "counter",
                "Epochs that have travelled as one packet",
                self.aggregated_epochs,
            ),
            ("window_locks_total", "counter", "Locks of this rank's parts granted by packets", self.locks),
            (
                "window_locks_mapped_total",
                "counter",
                "Locks of windows in shared memory that this rank has taken without a packet",
                self.mapped_locks,
            ),
            (
                "window_recorded_bytes",
                "gauge",
                "Bytes of operations that wait for their epoch",
                self.recorded_bytes,
            ),
            ("window_refused_total", "counter", "Requests for windows that were refused", self.refused),
            ("window_regions", "gauge", "Regions that are attached to dynamic windows", self.regions as u64),
            (
                "window_missed_total",
                "counter",
                "Packets on memory that is not attached to a dynamic window",
                self.missed,
            ),
        ]
    }
}

/// Name, type, help and value.
type Sample = (&'static str, &'static str, &'static str, u64);

/// Messages exchanged with one rank, in all its incarnations. A message counts from its first packet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PeerStats {
    /// The other rank.
    pub rank: Rank,
    /// Messages sent together with their envelope, alone in a packet or with others.
    pub eager_sent: u64,
    /// Messages sent by rendezvous.
    pub rendezvous_sent: u64,
    /// Bytes of all messages sent.
    pub bytes_sent: u64,
    /// Messages received in one packet.
    pub eager_received: u64,
    /// Messages received by rendezvous.
    pub rendezvous_received: u64,
    /// Bytes of all messages received.
    pub bytes_received: u64,
    /// Messages that came before their receive.
    pub unexpected: u64,
}

impl PeerStats {
    /// Returns the number of messages sent, in one packet or by rendezvous.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.eager_sent + self.rendezvous_sent
    }

    /// Returns the number of messages received, in one packet or by rendezvous.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.eager_received + self.rendezvous_received
    }
}

impl Stats {
    /// Returns the counters of an engine. `threads_refused` is 0: the runtime counts it.
    pub(crate) fn of<P: Port>(rank: WorldRank, engine: &Engine<P>, waited_ns: u64) -> Self {
        let (counters, usage) = (engine.counters(), engine.usage());
        let (boards, boards_refused) = engine.boards().usage();
        let mut peers: Vec<PeerStats> =
            engine.traffic().map(|(rank, traffic)| peer_stats(rank, &traffic)).collect();
        peers.sort_unstable_by_key(|peer| peer.rank);
        Self {
            rank: Rank(rank.0),
            peers,
            refused: counters.refused,
            lost: counters.lost,
            rejected: counters.rejected.total(),
            stale: counters.stale,
            again: counters.again,
            failed_peers: counters.failed_peers,
            threads_refused: 0,
            boards,
            boards_refused,
            registrations: counters.registrations,
            registered_bytes: usage.registered,
            registered_bytes_used: usage.registered_used,
            requests: usage.requests,
            queued: usage.queued,
            outbox_bytes: usage.outbox + usage.gathered,
            unexpected_messages: usage.unexpected_messages,
            unexpected_max: counters.unexpected_max,
            unexpected_bytes: usage.unexpected + usage.envelopes,
            waited_ns,
            windows: WindowStats::of(&engine.stack().windows),
        }
    }

    /// Returns JSON, in one line.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::json!(self).to_string()
    }

    /// Returns Prometheus's text format, version 0.0.4. Each sample is labelled with the rank. Samples about messages
    /// are also labelled with the peer, and counts of messages with `protocol`, which is `eager` or `rendezvous`.
    #[must_use]
    pub fn to_prometheus(&self) -> String {
        let mut text = String::new();
        let by_protocol = |name, help, of: fn(&PeerStats) -> [u64; 2]| {
            self.by_peer(name, help, |peer| {
                let [eager, rendezvous] = of(peer);
                vec![(",protocol=\"eager\"", eager), (",protocol=\"rendezvous\"", rendezvous)]
            })
        };
        text += &by_protocol("messages_sent_total", "Messages sent", |peer| {
            [peer.eager_sent, peer.rendezvous_sent]
        });
        text += &by_protocol("messages_received_total", "Messages received", |peer| {
            [peer.eager_received, peer.rendezvous_received]
        });
        text +=
            &self.by_peer("bytes_sent_total", "Bytes of messages sent", |peer| vec![("", peer.bytes_sent)]);
        text += &self.by_peer("bytes_received_total", "Bytes of messages received", |peer| {
            vec![("", peer.bytes_received)]
        });
        text += &self.by_peer("unexpected_total", "Messages that came before their receive", |peer| {
            vec![("", peer.unexpected)]
        });
        let Self { rank, .. } = self;
        let samples: &[Sample] = &[
            ("refused_total", "counter", "Envelopes refused for lack of budget", self.refused),
            ("lost_total", "counter", "Messages not delivered although their sends had returned", self.lost),
            ("rejected_total", "counter", "Packets refused", self.rejected),
            ("stale_total", "counter", "Packets about operations that were over", self.stale),
            ("again_total", "counter", "Times that the transport had no room", self.again),
            ("failed_peers_total", "counter", "Peers that failed", self.failed_peers),
            (
                "threads_refused_total",
                "counter",
                "Threads for progress that were refused",
                self.threads_refused,
            ),
            ("boards", "gauge", "Communicators whose ranks share a board", self.boards as u64),
            ("boards_refused_total", "counter", "Boards for which there was no room", self.boards_refused),
            ("registrations_total", "counter", "Times that memory was registered", self.registrations),
            ("registered_bytes", "gauge", "Memory that stays registered", self.registered_bytes),
            (
                "registered_bytes_used",
                "gauge",
                "Memory that stays registered and that messages use",
                self.registered_bytes_used,
            ),
            ("requests", "gauge", "Requests not finished or not collected", self.requests as u64),
            ("queued", "gauge", "Packets and messages that wait for room or credit", self.queued as u64),
            ("outbox_bytes", "gauge", "Cost of messages whose sends have returned", self.outbox_bytes),
            ("waited_nanoseconds_total", "counter", "Time spent waiting in calls", self.waited_ns),
            (
                "unexpected_messages",
                "gauge",
                "Messages that wait for their receive",
                self.unexpected_messages as u64,
            ),
            ("unexpected_messages_max", "gauge", "The most of them at a time", self.unexpected_max),
            (
                "unexpected_bytes",
                "gauge",
                "Cost of messages that wait for their receive",
                self.unexpected_bytes,
            ),
        ];
        for &(name, kind, help, value) in samples.iter().chain(&self.windows.samples()) {
            text += &head(name, kind, help);
            let _ = writeln!(text, "samite_{name}{{rank=\"{rank}\"}} {value}");
        }
        text
    }

    /// Writes a counter with samples for each peer. `samples` returns their values, and their labels beside rank and
    /// peer.
    fn by_peer(
        &self,
        name: &str,
        help: &str,
        samples: impl Fn(&PeerStats) -> Vec<(&'static str, u64)>,
    ) -> String {
        let mut text = head(name, "counter", help);
        let Self { rank, peers, .. } = self;
        for peer in peers {
            for (labels, value) in samples(peer) {
                let _ =
                    writeln!(text, "samite_{name}{{rank=\"{rank}\",peer=\"{}\"{labels}}} {value}", peer.rank);
            }
        }
        text
    }
}

fn head(name: &str, kind: &str, help: &str) -> String {
    format!("# HELP samite_{name} {help}.\n# TYPE samite_{name} {kind}\n")
}

fn peer_stats(rank: WorldRank, traffic: &Traffic) -> PeerStats {
    PeerStats {
        rank: Rank(rank.0),
        eager_sent: traffic.eager_sent,
        rendezvous_sent: traffic.rendezvous_sent,
        bytes_sent: traffic.bytes_sent,
        eager_received: traffic.eager_received,
        rendezvous_received: traffic.rendezvous_received,
        bytes_received: traffic.bytes_received,
        unexpected: traffic.unexpected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_exchange_is_counted_on_both_sides() {
        let stats = crate::local(2, |world| {
            let comm = world.comm();
            let other = Rank(1 - comm.rank().0);
            if comm.rank() == 0 {
                for _ in 0..3 {
                    comm.send(&[0u8; 100], other, 1)?;
                }
                comm.send(&vec![0u8; 1 << 20], other, 2)?;
                comm.send(&[0u8; 0], other, 3)?;
            } else {
                comm.recv(&mut vec![0u8; 1 << 20], other, 2)?;
                comm.recv(&mut [0u8; 0], other, 3)?;
                // The short messages have arrived before the long message, and no receive for them was posted.
                for _ in 0..3 {
                    comm.recv(&mut [0u8; 100], other, 1)?;
                }
            }
            Ok::<Stats, crate::Error>(comm.stats())
        });
        let stats: Vec<Stats> = stats.into_iter().map(Result::unwrap).collect();
        let bytes = 300 + (1 << 20);
        let sent = PeerStats {
            rank: Rank(1),
            eager_sent: 4,
            rendezvous_sent: 1,
            bytes_sent: bytes,
            ..PeerStats::default()
        };
        assert_eq!(stats[0].peers[1], sent);
        let received = &stats[1].peers[0];
        let &PeerStats { rank, eager_received, rendezvous_received, bytes_received, unexpected, .. } =
            received;
        assert_eq!((rank, eager_received, rendezvous_received, bytes_received), (Rank(0), 4, 1, bytes));
        assert!((3..=5).contains(&unexpected), "{unexpected}");
    }

    #[test]
    fn operations_on_windows_are_counted() {
        let stats = crate::local(2, |world| {
            let comm = world.comm();
            let (window, other) = (comm.window(vec![0_u8; 8])?, Rank(1 - comm.rank().0));
            let epoch = window.lock(other, crate::LockKind::Exclusive)?;
            epoch.put(other, 0, &[1; 8])?;
            epoch.get(other, 0, &mut [0; 4])?;
            epoch.close()?;
            comm.barrier()?;
            let stats = comm.stats();
            window.free()?;
            Ok::<_, crate::Error>((stats, comm.stats()))
        });
        for (open, freed) in stats.into_iter().map(Result::unwrap) {
            let windows = WindowStats {
                open: 1,
                operations: 2,
                bytes_written: 8,
                bytes_read: 4,
                epochs: 1,
                locks: 1,
                ..WindowStats::default()
            };
            assert_eq!((&open.windows, open.windows.all_operations()), (&windows, 2));
            assert_eq!(freed.windows.open, 0);
        }
    }

    #[test]
    fn the_text_for_prometheus() {
        let peer = PeerStats {
            rank: Rank(4),
            eager_sent: 5,
            rendezvous_sent: 6,
            bytes_sent: 7,
            ..PeerStats::default()
        };
        let stats = Stats { rank: Rank(3), peers: vec![peer], queued: 8, ..Stats::default() };
        let text = stats.to_prometheus();
        let expected = "# HELP samite_messages_sent_total Messages sent.\n\
            # TYPE samite_messages_sent_total counter\n\
            samite_messages_sent_total{rank=\"3\",peer=\"4\",protocol=\"eager\"} 5\n\
            samite_messages_sent_total{rank=\"3\",peer=\"4\",protocol=\"rendezvous\"} 6\n";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains("\nsamite_bytes_sent_total{rank=\"3\",peer=\"4\"} 7\n"), "{text}");
        assert!(text.contains("\nsamite_unexpected_bytes{rank=\"3\"} 0\n"), "{text}");
        assert!(text.ends_with("samite_window_missed_total{rank=\"3\"} 0\n"), "{text}");
        assert!(stats.to_json().contains("\"bytes_sent\":7"), "{}", stats.to_json());
    }
}
