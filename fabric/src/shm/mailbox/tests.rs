use super::*;
use crate::port::{Port, Post};
use crate::shm::{Shm, ring};
use crate::testing::{Heard, Recorder};
use proptest::prelude::*;
use samite_os::random;

const ONE_SLOT: Config = Config {
    peers_max: 1,
    ring_bytes_min: 2 << 10,
    ring_bytes: 4 << 10,
    ring_bytes_max: 16 << 10,
    growth_bytes_max: 16 << 10,
};

/// The steps of a sender, from its first to its last. The test kills the sender after each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Reserve,
    Allocate,
    Name,
    Open,
    MarkOpen,
    CallOpen,
    /// A packet's bytes are in the ring, but the packet is not published.
    Write,
    Publish,
    /// The small ring contains the mark that the sender continues in the large ring.
    MoveToLarge,
    WriteLarge,
    PublishLarge,
    Wish,
    MarkWish,
    CallWish,
    /// The large ring contains the mark that the sender continues in the extra ring, if that was granted.
    MoveToExtra,
    WriteExtra,
    PublishExtra,
    /// The sender marks its slot, because the ring was quiet.
    MarkSent,
    CallSent,
    Close,
    MarkClosed,
    CallClosed,
}

impl Step {
    const ALL: [Self; 22] = [
        Self::Reserve,
        Self::Allocate,
        Self::Name,
        Self::Open,
        Self::MarkOpen,
        Self::CallOpen,
        Self::Write,
        Self::Publish,
        Self::MoveToLarge,
        Self::WriteLarge,
        Self::PublishLarge,
        Self::Wish,
        Self::MarkWish,
        Self::CallWish,
        Self::MoveToExtra,
        Self::WriteExtra,
        Self::PublishExtra,
        Self::MarkSent,
        Self::CallSent,
        Self::Close,
        Self::MarkClosed,
        Self::CallClosed,
    ];

    /// Performs the part of [`Remote::reserve`], [`ring::Producer`] and [`Connection`] in this step.
    fn take(self, remote: &Remote, owner: Process) {
        let (slot, bell) = (&remote.slots[0], &remote.header().bell);
        let granted = || slot.answer.load(Ordering::Acquire) == GRANTED;
        let ring = |ring: usize| {
            let mut rings = MappedRings::map(&remote.file, remote.layout, &remote.slots, 0).unwrap();
            rings.go_to(ring);
            rings
        };
        let write = |packet: &[u8], at: usize| {
            let mut producer = ring::Producer::new(ring(at));
            assert_eq!(producer.push(packet, [].as_slice()), ring::Push::Done);
            ring(at).lines[0].clear();
        };
        let mark = |from: usize, to: usize| {
            let line = &ring(from).lines[1];
            line.forge_number(to as u64);
            line.publish(0xffff);
        };
        match self {
            Self::Reserve => slot.owner.store(Phase::Reserved.word(owner), Ordering::Relaxed),
            Self::Allocate => remote.file.allocate(remote.layout.first_rings(0)).unwrap(),
            Self::Name => slot.sender.store(random().unwrap(), Ordering::Relaxed),
            Self::Open => slot.owner.store(Phase::Open.word(owner), Ordering::Release),
            Self::MarkOpen | Self::MarkWish | Self::MarkSent | Self::MarkClosed => _ = bell.mark(0),
            Self::CallOpen | Self::CallWish | Self::CallSent | Self::CallClosed => bell.call(),
            Self::Write => write(b"left behind", SMALL),
            Self::Publish => ring(SMALL).lines[0].publish(11),
            Self::MoveToLarge => mark(SMALL, LARGE),
            Self::WriteLarge => write(b"a long one", LARGE),
            Self::PublishLarge => ring(LARGE).lines[0].publish(10),
            Self::Wish => slot.wish.store(1, Ordering::Relaxed),
            Self::MoveToExtra if granted() => mark(LARGE, EXTRA),
            Self::WriteExtra if granted() => write(b"and more", EXTRA),
            Self::PublishExtra if granted() => ring(EXTRA).lines[0].publish(8),
            Self::MoveToExtra | Self::WriteExtra | Self::PublishExtra => {}
            Self::Close => slot.owner.store(Phase::Closed.word(owner), Ordering::Release),
        }
    }
}

/// Returns a process that was killed and reaped.
fn dead() -> Process {
    let mut child = std::process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    let this = Process::current().unwrap();
    let dead = Process { pid: child.id(), start: this.start };
    assert!(!dead.is_alive());
    dead
}

fn packets(port: &mut Shm) -> Vec<Heard> {
    let mut sink = Recorder::default();
    while port.poll(&mut sink).unwrap() > 0 {}
    sink.0
}

#[test]
fn a_sender_that_dies_at_any_step_wastes_its_slot_until_another_asks() {
    let dead = dead();
    for last in Step::ALL {
        // The receiver polls between any two steps, or not at all.
        for looks in [false, true] {
            let mut receiver = Shm::open(&ONE_SLOT).unwrap();
            let remote = Remote::open(&receiver.whereabouts).unwrap();
            let mut heard = Vec::new();
            for step in Step::ALL.into_iter().filter(|&step| step <= last) {
                step.take(&remote, dead);
                if looks {
                    heard.extend(packets(&mut receiver));
                }
            }
            let mut sender = Shm::open(&ONE_SLOT).unwrap();
            let to = sender.resolve(&receiver.address()).unwrap();
            let told = last == Step::CallClosed && looks;
            let first = if told { Post::Done } else { Post::Again };
            assert_eq!(sender.send(to, b"new", &[]), Ok(first), "{last:?}, {looks}");
            heard.extend(packets(&mut receiver));
            if first == Post::Again {
                assert_eq!(sender.send(to, b"new", &[]), Ok(Post::Done), "{last:?}, {looks}");
                heard.extend(packets(&mut receiver));
            }
            // No extra ring is granted unless the receiver polls.
            let expected = [
                (last >= Step::Publish).then_some(&b"left behind"[..]),
                (last >= Step::PublishLarge).then_some(b"a long one"),
                (last >= Step::PublishExtra && looks).then_some(b"and more"),
                Some(b"new"),
            ];
            let expected = expected.into_iter().flatten().map(|packet| Heard::Packet(packet.to_vec()));
            assert!(heard.iter().eq(&expected.collect::<Vec<_>>()), "{last:?}, {looks}: {heard:?}");
            assert_eq!(receiver.usage().growth_bytes, 0, "{last:?}, {looks}");
        }
    }
}

#[test]
fn one_word_holds_a_phase_and_its_owner() {
    let owner = Process { pid: (1 << 22) - 1, start: (1 << 40) - 1 };
    for phase in [Phase::Reserved, Phase::Open, Phase::Closed] {
        assert_eq!(Phase::parse(phase.word(owner)), Some((phase, owner)));
    }
    assert_eq!(Phase::parse(FREE), None);
}

/// Senders in many threads reserve slots at the same time. Each gets a slot of its own, and no packet is lost or
/// appears in another sender's ring.
#[test]
fn senders_in_many_threads_get_slots_of_their_own() {
    let config = Config { peers_max: 8, ..ONE_SLOT };
    let mut receiver = Shm::open(&config).unwrap();
    let address = receiver.address();
    let count = 40;
    let mut heard = Vec::new();
    std::thread::scope(|scope| {
        for thread in 0..8u8 {
            let (address, config) = (&address, &config);
            scope.spawn(move || {
                for number in 0..count {
                    let mut sender = Shm::open(config).unwrap();
                    let to = sender.resolve(address).unwrap();
                    while sender.send(to, &[thread, number], &[]).unwrap() == Post::Again {
                        std::thread::yield_now();
                    }
                }
            });
        }
        while heard.len() < 8 * usize::from(count) {
            heard.extend(packets(&mut receiver));
        }
    });
    for thread in 0..8 {
        let numbers = heard.iter().filter_map(|heard| match heard {
            Heard::Packet(bytes) if bytes[0] == thread => Some(bytes[1]),
            _ => None,
        });
        let mut numbers: Vec<u8> = numbers.collect();
        // Each packet is from another sender, and the packets of different senders have no order.
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..count));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

    /// A process that may write to the mailbox can write any bytes at any time. Neither the receiver nor a sender then
    /// panics or accesses memory outside the mailbox.
    #[test]
    fn garbage_anywhere_in_the_mailbox_is_survived(
        writes in prop::collection::vec((any::<prop::sample::Index>(), 0u64..4, any::<u64>(), 0usize..3), 1..200)
    ) {
        let config = Config { peers_max: 2, ..ONE_SLOT };
        let (mut receiver, mut sender) = (Shm::open(&config).unwrap(), Shm::open(&config).unwrap());
        let remote = Remote::open(&receiver.whereabouts).unwrap();
        let mapped = [0..PAGE, remote.layout.rings(0), remote.layout.rings(1)].map(|range| {
            let words = range.len().min(size_of::<Header>() + 2 * size_of::<Slot>()) / size_of::<u64>();
            remote.file.map(range).unwrap().view::<AtomicU64>(0, words)
        });
        let to = sender.resolve(&receiver.address()).unwrap();
        for (index, small, large, file) in writes {
            let value = if small < 3 { small << 16 | large & 0xffff } else { large };
            mapped[file][index.index(mapped[file].len())].store(value, Ordering::Relaxed);
            let _ = sender.send(to, &[0; 40], &[0; 800]);
            let mut sink = Recorder::default();
            // Such writes do not break the port itself, unless memory runs out.
            prop_assert!(receiver.poll(&mut sink).is_ok());
        }
    }
}
