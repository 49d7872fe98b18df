//! A rank's report to its launcher.

use samite_control::{Awaits, Figures};
use samite_fabric::Port;
use samite_p2p::{Awaited, Operation, Report, Time, WorldRank};
use samite_rma::Event;

use crate::stack::Engine;
use crate::stats::{PeerStats, Stats};

/// Returns the figures of an engine, which are sums over its peers, and the figures of each peer. `sought` describes
/// the message that a thread waits for without a request, in a probe for example.
pub(crate) fn figures_of<P: Port>(
    engine: &mut Engine<P>,
    now: Time,
    waited_ns: u64,
    sought: Option<Report>,
) -> (Figures, Vec<samite_control::PeerStats>) {
    let of_message = engine.oldest(now).or(sought).map(|report| awaits(&report));
    let (out, stack) = engine.parts();
    let of_window =
        stack.windows.oldest(out.link).map(|(awaiting, begun)| awaits_in_window(awaiting, now.since(begun)));
    // Of equal ages this is the wait for the window.
    let awaits = of_message.into_iter().chain(of_window).max_by_key(|awaits| awaits.age_ns);
    let Stats { peers, unexpected_messages, unexpected_max, requests, queued, windows, .. } =
        Stats::of(WorldRank(0), engine, waited_ns);
    let sum = |of: fn(&PeerStats) -> u64| peers.iter().map(of).fold(0, u64::wrapping_add);
    let figures = Figures {
        age_ns: now.as_nanos(),
        sent: sum(PeerStats::sent),
        bytes_sent: sum(|peer| peer.bytes_sent),
        received: sum(PeerStats::received),
        bytes_received: sum(|peer| peer.bytes_received),
        operations: windows.all_operations(),
        unexpected: sum(|peer| peer.unexpected),
        unexpected_messages,
        unexpected_max,
        requests,
        queued,
        waited_ns,
        awaits,
    };
    (figures, peers.into_iter().map(for_launcher).collect())
}

/// Converts the counts of a peer to the launcher's form.
fn for_launcher(peer: PeerStats) -> samite_control::PeerStats {
    let PeerStats {
        rank,
        eager_sent,
        rendezvous_sent,
        bytes_sent,
        eager_received,
        rendezvous_received,
        bytes_received,
        unexpected,
    } = peer;
    samite_control::PeerStats {
        rank: rank.0,
        eager_sent,
        rendezvous_sent,
        bytes_sent,
        eager_received,
        rendezvous_received,
        bytes_received,
        unexpected,
    }
}

/// Converts the wait of a window to the launcher's form.
fn awaits_in_window(awaiting: samite_rma::Awaiting, age_ns: u64) -> Awaits {
    let awaited = match awaiting.event {
        Event::EarlierEpoch => "earlier epoch",
        Event::Window => "window",
        Event::Lock => "lock",
        Event::Exposure => "exposure",
        Event::Completion => "completion",
        Event::Data => "data",
        Event::Barrier => "barrier",
    };
    let (peer, awaited) = (Some(awaiting.rank.0), awaited.to_owned());
    Awaits { in_window: true, peer, age_ns, awaited, ..Awaits::default() }
}

/// Converts a report to the launcher's form.
fn awaits(report: &Report) -> Awaits {
    let awaited = match report.awaited {
        Awaited::Address => "address",
        Awaited::Room => "room",
        Awaited::Match => "match",
        Awaited::Message => "message",
        Awaited::Bytes => "bytes",
        Awaited::Fin => "fin",
        Awaited::Marks => "marks",
    };
    Awaits {
        in_window: false,
        is_send: report.operation == Operation::Send,
        peer: report.peer.map(|rank| rank.0),
        tag: report.tag,
        mask: report.mask,
        bytes: report.bytes,
        age_ns: report.age_ns,
        awaited: awaited.to_owned(),
        other_tags: report.other_tags.map_or(0, |others| others.messages),
        other_tag: report.other_tags.map(|others| others.first),
    }
}
