//! For the tests of ports.

use crate::{Access, Atomic, Failure, Memory, OpId, PeerId, Port, PortError, Post, Region, Sink};

/// What a port reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Packet(Vec<u8>),
    Completed(OpId, Result<(), Failure>),
    Notified(u64),
    Lost(PeerId),
}

/// A sink that notes everything.
#[derive(Debug, Default)]
pub(crate) struct Recorder(pub(crate) Vec<Heard>);

impl Sink for Recorder {
    fn packet(&mut self, bytes: &[u8]) {
        self.0.push(Heard::Packet(bytes.to_vec()));
    }

    fn completed(&mut self, op: OpId, result: Result<(), Failure>) {
        self.0.push(Heard::Completed(op, result));
    }

    fn notified(&mut self, immediate: u64) {
        self.0.push(Heard::Notified(immediate));
    }

    fn peer_lost(&mut self, peer: PeerId) {
        self.0.push(Heard::Lost(peer));
    }
}

pub(crate) fn bytes_of(region: &Region) -> Vec<u8> {
    let mut bytes = vec![0; region.len()];
    region.copy_out(0, &mut bytes).expect("the whole region");
    bytes
}

/// What must hold of atomic operations on a region of 16 zeros, on every port that has them. `settle` brings what
/// was posted to its end, and says what the first of the ports has heard.
pub(crate) fn change_words<P: Port>(
    (mut a, to_b): (P, PeerId),
    (mut b, to_a): (P, PeerId),
    theirs: &Region,
    mut settle: impl FnMut(&mut P, &mut P) -> Vec<Heard>,
) {
    assert!(a.caps().change.is_some());
    let ours = Region::new(Memory::new(vec![0xffu8; 8]));
    let mine = a.register(to_b, &ours, Access::LOCAL_READ | Access::LOCAL_WRITE).unwrap();
    let exposed = b.register(to_a, theirs, Access::REMOTE_READ | Access::REMOTE_WRITE).unwrap();
    let read_only = b.register(to_a, theirs, Access::REMOTE_READ).unwrap();
    let add = Atomic::Add(u64::MAX);
    let swap = |expected, new| Atomic::CompareSwap { expected, new };
    for (width, at, change, before, after) in [
        (8, 0, Atomic::Add(5), 0u64, 5u64),
        (8, 0, add, 5, 4),
        (8, 0, swap(5, 9), 4, 4),
        (8, 0, swap(4, 1 << 40), 4, 1 << 40),
        // Of a word of 4 bytes nothing is carried to its neighbours.
        (4, 12, add, 0, 0xffff_ffff),
        (4, 12, Atomic::Add(2), 0xffff_ffff, 1),
        (4, 12, swap(u64::MAX << 32 | 1, 7), 1, 7),
    ] {
        let word = |bytes: &[u8]| match width {
            8 => u64::from_ne_bytes(bytes.try_into().unwrap()),
            _ => u32::from_ne_bytes(bytes.try_into().unwrap()).into(),
        };
        let posted = a.atomic(to_b, change, exposed.remote(at), mine.local(0, width), OpId(1)).unwrap();
        let heard = settle(&mut a, &mut b);
        match posted {
            Post::Over => assert_eq!(heard, []),
            posted => {
                assert_eq!((posted, &heard[..]), (Post::Done, &[Heard::Completed(OpId(1), Ok(()))][..]))
            }
        }
        assert_eq!(word(&bytes_of(&ours)[..width]), before, "{change:?}");
        assert_eq!(word(&bytes_of(theirs)[at..][..width]), after, "{change:?}");
    }
    assert_eq!(bytes_of(theirs)[8..12], [0; 4]);
    for place in [exposed.remote(2), exposed.remote(16), read_only.remote(0)] {
        assert_eq!(a.atomic(to_b, add, place, mine.local(0, 4), OpId(2)), Ok(Post::Done));
        assert_eq!(settle(&mut a, &mut b), [Heard::Completed(OpId(2), Err(Failure::Refused))]);
    }
    for len in [0, 1, 2, 3, 5, 6, 7] {
        let posted = a.atomic(to_b, add, exposed.remote(0), mine.local(0, len), OpId(3));
        assert_eq!(posted, Err(PortError::OutOfBounds { offset: 0, len }));
    }
}
