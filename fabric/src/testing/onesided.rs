//! Tests of the rules of one-sided calls. Each case runs over every port that has such calls.

use std::collections::VecDeque;

use super::{Heard, Recorder, bytes_of};
use crate::{
    Access, Caps, Change, Changed, Failure, Memory, OpId, Order, PeerId, Port, PortError, Post, Reach,
    Region, Registration, Remote,
};

/// The number of polls after which an operation counts as lost.
const POLLS_MAX: usize = 3_000_000;

/// The largest number of polls after the end of a peer. Before each of these polls a test posts to the peer, until a
/// post is refused.
const POLLS_AFTER_END: usize = 20_000;

/// The result of a posted operation.
type Ended = Result<Result<(), Failure>, PortError>;

/// Two connected ports, and the function that lets the medium between them make progress.
pub(crate) struct Ends<P> {
    a: P,
    to_b: PeerId,
    b: Option<P>,
    heard: VecDeque<Heard>,
    notes: Vec<u64>,
    /// The number of packets that have reached the target.
    packets: usize,
    next: u64,
    step: Box<dyn FnMut()>,
}

/// The calls that move bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Put,
    PutBytes,
    PutV,
    PutImm,
    Get,
    GetBytes,
}

impl Call {
    const ALL: [Self; 6] = [Self::Put, Self::PutBytes, Self::PutV, Self::PutImm, Self::Get, Self::GetBytes];

    fn writes(self) -> bool {
        !matches!(self, Self::Get | Self::GetBytes)
    }

    /// Returns the maximum length of this call on a port, or `None` if the port does not have the call.
    fn longest(self, caps: &Caps) -> Option<usize> {
        let (able, max) = match self {
            Self::Put => (caps.put.is_some(), caps.rma_max),
            Self::PutBytes => (caps.put.is_some() && caps.put_bytes_max > 0, caps.put_bytes_max),
            Self::PutV => (caps.put.is_some() && caps.iov_max > 0, caps.rma_max),
            Self::PutImm => (caps.put.is_some() && caps.immediate_bits > 0, caps.rma_max),
            Self::Get => (caps.get.is_some(), caps.rma_max),
            Self::GetBytes => (caps.get_bytes_max > 0, caps.get_bytes_max),
        };
        able.then_some(max)
    }
}

/// This side's memory for operations: a region and its registration.
struct Ours {
    region: Region,
    registration: Registration,
}

impl<P: Port> Ends<P> {
    pub(crate) fn new(mut a: P, mut b: P, step: impl FnMut() + 'static) -> Self {
        let to_b = a.resolve(&b.address()).expect("an address of its kind");
        b.resolve(&a.address()).expect("an address of its kind");
        Self {
            a,
            to_b,
            b: Some(b),
            heard: VecDeque::new(),
            notes: Vec::new(),
            packets: 0,
            next: 0,
            step: Box::new(step),
        }
    }

    fn caps(&self) -> &Caps {
        self.a.caps_for(self.to_b)
    }

    fn poll(&mut self) {
        (self.step)();
        let mut heard = Recorder::default();
        self.a.poll(&mut heard).expect("the port works");
        self.heard.extend(heard.0);
        let mut heard = Recorder::default();
        if let Some(b) = &mut self.b {
            b.poll(&mut heard).expect("the port works");
        }
        self.notes.extend(heard.0.iter().filter_map(|heard| match heard {
            Heard::Notified(note) => Some(*note),
            _ => None,
        }));
        self.packets += heard.0.iter().filter(|heard| matches!(heard, Heard::Packet(_))).count();
    }

    /// Registers a span of the target's `region` for the accesses `access` of the initiator.
    fn theirs(&mut self, region: &Region, span: std::ops::Range<usize>, access: Access) -> Registration {
        let b = self.b.as_mut().expect("it has not ended");
        let to_a = b.resolve(&self.a.address()).expect("an address of its kind");
        let path = b.path(to_a).expect("a peer");
        b.register_span(path, region, span, access).expect("room for it")
    }

    fn ours(&mut self, bytes: Vec<u8>) -> Ours {
        let region = Region::new(Memory::new(bytes));
        let registration = self
            .a
            .register(self.to_b, &region, Access::LOCAL_READ | Access::LOCAL_WRITE)
            .expect("room for it");
        Ours { region, registration }
    }

    /// Returns a new name for an operation.
    fn op(&mut self) -> OpId {
        self.next += 1;
        OpId(self.next)
    }

    /// Returns the end of an operation if it was reported. Panics if it was reported twice.
    fn ended(&mut self, op: OpId) -> Option<Result<Option<u64>, Failure>> {
        let of_op = |heard: &Heard| match heard {
            Heard::Completed(id, result) if *id == op => Some(result.clone().map(|()| None)),
            Heard::Changed(id, before) if *id == op => Some(Ok(Some(*before))),
            _ => None,
        };
        let mut ends = self.heard.iter().filter_map(of_op);
        let end = ends.next();
        assert_eq!(ends.next(), None, "{op:?} ended twice");
        end
    }

    /// Polls until an operation has ended, and removes its report.
    fn wait(&mut self, op: OpId) -> Result<Option<u64>, Failure> {
        for _ in 0..POLLS_MAX {
            if let Some(end) = self.ended(op) {
                self.poll();
                assert!(self.ended(op).is_some(), "and not twice");
                let is_it = |id: &OpId| *id == op;
                let others = |heard: &Heard| !matches!(heard, Heard::Completed(id, _) | Heard::Changed(id, _) if is_it(id));
                self.heard.retain(others);
                return end;
            }
            self.poll();
        }
        panic!("{op:?} has not ended; heard {:?}", self.heard);
    }

    /// Repeats a call until there is room.
    fn post(
        &mut self,
        mut call: impl FnMut(&mut P, PeerId) -> Result<Post, PortError>,
    ) -> Result<Post, PortError> {
        for _ in 0..POLLS_MAX {
            match call(&mut self.a, self.to_b) {
                Ok(Post::Again) => self.poll(),
                posted => return posted,
            }
        }
        panic!("there is no room");
    }

    /// Starts `call` between `len` bytes of `ours`, from `offset` on, and a place at the target. After a get the bytes
    /// are in `ours`.
    fn begin(
        &mut self,
        call: Call,
        ours: &Ours,
        (offset, len): (usize, usize),
        place: Remote,
        op: OpId,
    ) -> Result<Post, PortError> {
        let local = ours.registration.local(offset, len);
        let mut bytes = vec![0; len];
        // If the call is expected to refuse its local span, the span may lie outside of the region, and there are no
        // bytes to copy.
        let _ = ours.region.copy_out(offset, &mut bytes);
        let parts = self.caps().iov_max.clamp(1, 3);
        let cuts: Vec<_> = (0..=parts).map(|part| len * part / parts).collect();
        let list: Vec<_> = cuts
            .windows(2)
            .map(|cut| ours.registration.local(offset.wrapping_add(cut[0]), cut[1] - cut[0]))
            .collect();
        let bits = self.caps().immediate_bits;
        let posted = self.post(|port, to| match call {
            Call::Put => port.put(to, local, place, op),
            Call::PutBytes => port.put_bytes(to, &bytes, place, op),
            Call::PutV => port.put_v(to, &list, place, op),
            Call::PutImm => port.put_imm(to, local, place, op.0 & (u64::MAX >> (64 - bits.clamp(1, 64))), op),
            Call::Get => port.get(to, local, place, op),
            Call::GetBytes => port.get_bytes(to, &mut bytes, place),
        });
        if call == Call::GetBytes && posted == Ok(Post::Over) {
            ours.region.copy_in(offset, &bytes).expect("as many as asked for");
        }
        // The port has copied the bytes within the call, so they may change now.
        bytes.fill(0xdb);
        posted
    }

    fn perform(&mut self, call: Call, ours: &Ours, span: (usize, usize), place: Remote) -> Ended {
        let op = self.op();
        Ok(match self.begin(call, ours, span, place, op)? {
            Post::Over => {
                assert_eq!(self.ended(op), None);
                Ok(())
            }
            posted => {
                assert_eq!(posted, Post::Done);
                assert_ne!(call, Call::GetBytes, "it ends within its call");
                self.wait(op).map(|before| assert_eq!(before, None))
            }
        })
    }

    /// Polls until the target has received `count` notifications since the start.
    fn hear_notes(&mut self, count: usize) {
        assert!((0..POLLS_MAX).any(|_| {
            self.poll();
            self.notes.len() >= count
        }));
    }

    fn change(&mut self, how: Change, place: Remote) -> Result<Result<u64, Failure>, PortError> {
        let op = self.op();
        for _ in 0..POLLS_MAX {
            match self.a.change(self.to_b, how, place, op)? {
                Changed::Again => self.poll(),
                Changed::Over(before) => {
                    assert_eq!(self.ended(op), None);
                    return Ok(Ok(before));
                }
                Changed::Done => {
                    return Ok(self.wait(op).map(|before| before.expect("it ends with the word as it was")));
                }
            }
        }
        panic!("there is no room");
    }

    /// Connects to the target again if the connection is gone, which a refusal can cause.
    fn renew(&mut self) {
        (0..8).for_each(|_| self.poll());
        let b = self.b.as_ref().expect("it has not ended");
        self.to_b = self.a.resolve(&b.address()).expect("an address of its kind");
        self.heard.retain(|heard| !matches!(heard, Heard::Lost(_)));
    }
}

/// Returns functions that make memory with given bytes: shared memory, and private memory if `reach` includes it.
fn memories(reach: Reach) -> Vec<fn(Vec<u8>) -> Region> {
    let shared = |bytes: Vec<u8>| {
        let region = Region::shared(bytes.len()).expect("memory");
        region.copy_in(0, &bytes).expect("all of it");
        region
    };
    let private = |bytes: Vec<u8>| Region::new(Memory::new(bytes));
    match reach {
        Reach::None => vec![],
        Reach::Shared => vec![shared],
        Reach::Any => vec![shared, private],
    }
}

fn pattern(len: usize, salt: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251 + salt) as u8).collect()
}

/// Each call moves exactly its bytes between spans of regions, at all lengths and alignments.
pub(crate) fn bytes_arrive_exactly<P: Port>(ends: &mut Ends<P>) {
    const MARGIN: usize = 13;
    for call in Call::ALL {
        let Some(longest) = call.longest(ends.caps()) else { continue };
        let reach = if call.writes() { ends.caps().put } else { ends.caps().get };
        let longest = longest.min(70_000);
        for memory in memories(reach) {
            for len in [0, 1, 3, 7, 8, 9, 16, 31, 64, 100, 4096, 5001, longest] {
                let len = len.min(longest);
                for shift in [0, 1, 4, 8] {
                    let (start, size) = (MARGIN + shift, MARGIN + shift + len + MARGIN);
                    let theirs = memory(pattern(size, 1));
                    let ours = ends.ours(pattern(size, 2));
                    // The span begins within the region, and the operation within the span.
                    let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
                    let registration = ends.theirs(&theirs, 5..size - 3, access);
                    let place = registration.remote(start - 5);
                    let notes = ends.notes.len();
                    let ended = ends.perform(call, &ours, (start, len), place);
                    assert_eq!(ended, Ok(Ok(())), "{call:?} of {len} bytes");
                    let (mut at_target, mut at_origin) = (pattern(size, 1), pattern(size, 2));
                    match call.writes() {
                        true => at_target[start..start + len]
                            .copy_from_slice(&pattern(size, 2)[start..start + len]),
                        false => at_origin[start..start + len]
                            .copy_from_slice(&pattern(size, 1)[start..start + len]),
                    }
                    assert!(
                        bytes_of(&theirs) == at_target,
                        "{call:?} of {len} bytes at {shift}: the target's"
                    );
                    assert!(
                        bytes_of(&ours.region) == at_origin,
                        "{call:?} of {len} bytes at {shift}: the origin's"
                    );
                    if call == Call::PutImm {
                        ends.hear_notes(notes + 1);
                        assert_eq!(ends.notes[notes..], [ends.next], "one notice for each");
                    }
                    ends.a.deregister(ours.registration);
                    ends.b.as_mut().expect("it has not ended").deregister(registration);
                }
            }
        }
    }
}

/// An access that its target does not allow fails, and touches nothing.
pub(crate) fn refusals_are_errors_and_touch_nothing<P: Port>(open: impl Fn() -> Ends<P>) {
    const LEN: usize = 64;
    let first = open();
    for call in Call::ALL.into_iter().filter(|call| call.longest(first.caps()).is_some()) {
        let reach = if call.writes() { first.caps().put } else { first.caps().get };
        for memory in memories(reach) {
            let mut ends = open();
            let theirs = memory(pattern(3 * LEN, 1));
            let (right, wrong) = match call.writes() {
                true => (Access::REMOTE_WRITE, Access::REMOTE_READ),
                false => (Access::REMOTE_READ, Access::REMOTE_WRITE),
            };
            let good = ends.theirs(&theirs, LEN..2 * LEN, right);
            let other = ends.theirs(&theirs, 0..3 * LEN, wrong);
            let ended = ends.theirs(&theirs, 0..3 * LEN, right);
            ends.b.as_mut().expect("it has not ended").deregister(ended);
            let ours = ends.ours(bytes_of(&theirs)[LEN..2 * LEN].to_vec());
            assert_eq!(ends.perform(call, &ours, (0, LEN), good.remote(0)), Ok(Ok(())), "the right place");
            ends.hear_notes(usize::from(call == Call::PutImm));
            ends.a.deregister(ours.registration);
            let far = |address| Remote { address, ..good.remote(0) };
            let places = [
                // Bytes of the region that lie outside of the span, on either side.
                good.remote(1),
                far(good.base.wrapping_sub(1)),
                far(good.base.wrapping_add(LEN as u64)),
                far(good.base ^ 1 << 63),
                far(u64::MAX),
                far(u64::MAX - LEN as u64 + 1),
                other.remote(LEN),
                ended.remote(LEN),
                Remote { key: good.key ^ 2, ..good.remote(0) },
                Remote { key: 0, ..good.remote(0) },
            ];
            for place in places {
                // The memory is registered for each place, because an earlier registration may belong to a path that is
                // gone.
                let ours = ends.ours(pattern(LEN, 2));
                let result = ends.perform(call, &ours, (0, LEN), place);
                match (call, result) {
                    (Call::GetBytes, Err(PortError::Refused)) => {}
                    (_, Ok(Err(Failure::Refused | Failure::PeerLost | Failure::Provider { .. }))) => {}
                    (_, other) => panic!("{call:?} to {place:?}: {other:?}"),
                }
                assert!(bytes_of(&theirs) == pattern(3 * LEN, 1), "{call:?} to {place:?}");
                ends.a.deregister(ours.registration);
                ends.renew();
            }
            let told = usize::from(call == Call::PutImm);
            assert_eq!(ends.notes.len(), told, "nothing that was refused is told: {:?}", ends.notes);
        }
    }
}

/// A call that the caller may not make returns an error.
pub(crate) fn misuse_is_an_error_of_the_call<P: Port>(ends: &mut Ends<P>) {
    let theirs = Region::shared(64).expect("memory");
    let place = match ends.caps().put {
        Reach::None => Remote { key: 1 << 32, address: 0 },
        _ => ends.theirs(&theirs, 0..64, Access::REMOTE_READ | Access::REMOTE_WRITE).remote(0),
    };
    let ours = ends.ours(vec![1; 64]);
    let caps = ends.caps().clone();
    for call in Call::ALL {
        let Some(longest) = call.longest(ends.caps()) else {
            let refused = ends.perform(call, &ours, (0, 8), place);
            assert!(matches!(refused, Err(PortError::Unsupported { .. })), "{call:?}: {refused:?}");
            continue;
        };
        if matches!(call, Call::PutBytes | Call::GetBytes) {
            let mut bytes = vec![0; longest + 1];
            let too_long = Err(PortError::TooLong { len: longest + 1, max: longest });
            let op = ends.op();
            let posted = match call {
                Call::PutBytes => ends.a.put_bytes(ends.to_b, &bytes, place, op),
                _ => ends.a.get_bytes(ends.to_b, &mut bytes, place),
            };
            assert_eq!(posted, too_long);
            continue;
        }
        for (offset, len) in [(0, 65), (64, 1), (65, 0), (usize::MAX - 3, 8)] {
            let ended = ends.perform(call, &ours, (offset, len.min(65)), place);
            let is_outside = matches!(ended, Err(PortError::OutOfBounds { .. }));
            assert!(is_outside, "{call:?} of {len} bytes at {offset}: {ended:?}");
        }
        let stale = Ours {
            registration: Registration { key: ours.registration.key ^ 1, ..ours.registration },
            region: ours.region.clone(),
        };
        let ended = ends.perform(call, &stale, (0, 8), place);
        assert!(matches!(ended, Err(PortError::OutOfBounds { .. })), "{call:?}: {ended:?}");
    }
    if caps.put.is_some() && caps.iov_max > 0 {
        let op = ends.op();
        let parts = vec![ours.registration.local(0, 1); caps.iov_max + 1];
        let too_long = Err(PortError::TooLong { len: caps.iov_max + 1, max: caps.iov_max });
        assert_eq!(ends.a.put_v(ends.to_b, &parts, place, op), too_long);
        // Pass as many parts as the port allows, and none.
        for parts in [&parts[1..], &[]] {
            let op = ends.op();
            match ends.post(|port, to| port.put_v(to, parts, place, op)) {
                Ok(Post::Over) => {}
                posted => {
                    assert_eq!(posted, Ok(Post::Done));
                    assert_eq!(ends.wait(op), Ok(None));
                }
            }
        }
    }
    if caps.change == Reach::None {
        let changed = ends.change(Change::Add(1), place);
        assert!(matches!(changed, Err(PortError::Unsupported { .. })), "{changed:?}");
    }
    let (start, end) = (60, 65);
    let path = ends.a.path(ends.to_b).expect("a peer");
    let outside = ends.a.register_span(path, &ours.region, start..end, Access::LOCAL_READ);
    assert!(matches!(outside, Err(PortError::OutOfBounds { .. })), "{outside:?}");
    #[expect(clippy::reversed_empty_ranges, reason = "which is what may be given")]
    let backwards = ends.a.register_span(path, &ours.region, 9..8, Access::LOCAL_READ);
    assert!(matches!(backwards, Err(PortError::OutOfBounds { .. })), "{backwards:?}");
    ends.a.deregister(ours.registration);
}

/// A suspended registration opens nothing. It can be resumed only for the same memory, and opens that memory then.
pub(crate) fn suspended_registrations_open_nothing<P: Port>(ends: &mut Ends<P>) {
    let Some(memory) = memories(ends.caps().put).pop() else { return };
    let theirs = memory(vec![0; 64]);
    let registration = ends.theirs(&theirs, 0..64, Access::REMOTE_WRITE);
    let place = registration.remote(0);
    let path = ends.a.path(ends.to_b).expect("a peer");
    let ours = ends.ours(vec![5; 64]);
    assert!(!ends.a.resume(path, ours.registration, &ours.region), "it is not suspended");
    let is_kept = ends.a.suspend(ours.registration);
    let refused = ends.perform(Call::Put, &ours, (0, 64), place);
    assert!(matches!(refused, Err(PortError::OutOfBounds { .. })), "{refused:?}");
    let memory = ours.region.reclaim().expect("the port does not hold it");
    for other in [Memory::zeroed(64), Memory::zeroed(32)] {
        assert!(!ends.a.resume(path, ours.registration, &Region::new(other)));
    }
    let ours = Ours { region: Region::new(memory), ..ours };
    assert_eq!(ends.a.resume(path, ours.registration, &ours.region), is_kept);
    if is_kept {
        assert_eq!(ends.perform(Call::Put, &ours, (0, 64), place), Ok(Ok(())));
        assert_eq!(bytes_of(&theirs), [5; 64]);
        assert!(ends.a.suspend(ours.registration));
    }
    ends.a.deregister(ours.registration);
    assert!(!ends.a.resume(path, ours.registration, &ours.region), "it has ended");
    ends.b.as_mut().expect("it has not ended").deregister(registration);
    // A peer has the key of this memory.
    if let Ok(registration) = ends.a.register(ends.to_b, &theirs, Access::REMOTE_READ | Access::LOCAL_READ) {
        assert!(!ends.a.suspend(registration));
    }
    assert!(!theirs.is_held());
}

/// A change returns the former value, and changes that word alone.
pub(crate) fn words_are_changed_in_one_step<P: Port>(ends: &mut Ends<P>) {
    let reach = ends.caps().change;
    for memory in memories(reach) {
        let theirs = memory(vec![0; 32]);
        let all = Access::REMOTE_READ | Access::REMOTE_WRITE;
        let registration = ends.theirs(&theirs, 8..32, all);
        let mut word = 0;
        for how in [
            Change::Add(5),
            Change::Add(u64::MAX),
            Change::CompareSwap { expected: 5, new: 9 },
            Change::CompareSwap { expected: 4, new: 1 << 40 },
            Change::Or(0xff),
            Change::And(0xf0),
            Change::Xor(u64::MAX),
            Change::Min(1 << 63),
            Change::MinSigned(3),
            Change::MaxSigned(-1),
            Change::Max(7),
            Change::Swap(u64::MAX - 1),
            Change::MaxSigned(i64::MAX),
        ] {
            assert_eq!(ends.change(how, registration.remote(8)), Ok(Ok(word)), "{how:?}");
            word = how.apply(word);
            let mut expected = vec![0; 32];
            expected[16..24].copy_from_slice(&word.to_ne_bytes());
            assert_eq!(bytes_of(&theirs), expected, "{how:?}");
        }
        let read_only = ends.theirs(&theirs, 0..32, Access::REMOTE_READ);
        let write_only = ends.theirs(&theirs, 0..32, Access::REMOTE_WRITE);
        let before = bytes_of(&theirs);
        let places = [1, 2, 4, 7, 20, 24].map(|offset| registration.remote(offset));
        for place in places.into_iter().chain([read_only.remote(8), write_only.remote(8)]) {
            assert_eq!(ends.change(Change::Add(1), place), Ok(Err(Failure::Refused)), "{place:?}");
        }
        assert_eq!(bytes_of(&theirs), before);
    }
}

/// The end of a peer ends every operation with an error, pending and later ones alike.
pub(crate) fn the_end_of_a_peer_ends_operations<P: Port>(ends: impl Fn() -> Ends<P>) {
    const LEN: usize = 4096;
    for call in Call::ALL {
        let mut ends = ends();
        let Some(longest) = call.longest(ends.caps()) else { continue };
        let len = longest.min(LEN);
        let theirs = Region::shared(LEN).expect("memory");
        let registration = ends.theirs(&theirs, 0..LEN, Access::REMOTE_READ | Access::REMOTE_WRITE);
        let ours = ends.ours(vec![7; LEN]);
        let place = registration.remote(0);
        assert_eq!(ends.perform(call, &ours, (0, len), place), Ok(Ok(())));
        let under_way = ends.op();
        let posted = ends.begin(call, &ours, (0, len), place, under_way).expect("the peer is there");
        ends.b = None;
        let mut after = Vec::new();
        let mut refused = false;
        for _ in 0..POLLS_AFTER_END {
            let op = ends.op();
            let local = ours.registration.local(0, len);
            let posted = match call {
                Call::Put | Call::PutImm => ends.a.put(ends.to_b, local, place, op),
                Call::PutBytes => ends.a.put_bytes(ends.to_b, &vec![1; len], place, op),
                Call::PutV => ends.a.put_v(ends.to_b, &[local], place, op),
                Call::Get => ends.a.get(ends.to_b, local, place, op),
                Call::GetBytes => ends.a.get_bytes(ends.to_b, &mut vec![0; len], place),
            };
            match posted {
                Ok(Post::Done) => after.push(op),
                Ok(Post::Again) => {}
                Err(PortError::PeerGone(_) | PortError::Provider { .. }) => refused = true,
                other => panic!("{call:?} after the end of the peer: {other:?}"),
            }
            if refused {
                break;
            }
            ends.poll();
        }
        ends.a.fence_peer(ends.to_b);
        (0..1000).for_each(|_| ends.poll());
        if !ends.caps().fence {
            continue;
        }
        if posted == Post::Done {
            assert!(ends.ended(under_way).is_some(), "{call:?}: what was under way ends");
        }
        for op in after {
            let ended = ends.ended(op);
            assert!(matches!(ended, Some(Err(_))), "{call:?} after the end of the peer: {ended:?}");
        }
        let op = ends.op();
        let posted = ends.a.put_bytes(ends.to_b, &[], place, op);
        assert_eq!(posted, Err(PortError::PeerGone(ends.to_b)), "{call:?}: it is cut off");
        ends.a.deregister(ours.registration);
        ours.region.reclaim().expect("nothing touches it any more");
    }
}

/// The orders that a port may claim. The order of packets is not among them, because every port must keep it.
pub(crate) const ORDERS: [Order; 6] = [
    Order::SEND_AFTER_PUT,
    Order::PUT_AFTER_PUT,
    Order::NOTE_AFTER_PUT,
    Order::GET_AFTER_PUT,
    Order::CHANGE_AFTER_PUT,
    Order::CHANGE_AFTER_CHANGE,
];

/// Posts two operations to which an order applies, and returns true if the second overtakes the first. Returns `None`
/// if the port lacks one of the operations.
pub(crate) fn overtakes<P: Port>(ends: &mut Ends<P>, order: Order) -> Option<bool> {
    let caps = ends.caps();
    let able = match order {
        Order::NOTE_AFTER_PUT => caps.put.is_some() && caps.immediate_bits > 0,
        Order::GET_AFTER_PUT => caps.put.is_some() && caps.get.is_some(),
        Order::CHANGE_AFTER_PUT => caps.put.is_some() && caps.change.is_some(),
        Order::CHANGE_AFTER_CHANGE => caps.change.is_some(),
        _ => caps.put.is_some(),
    };
    if !able {
        return None;
    }
    let theirs = Region::shared(8).expect("memory");
    let registration = ends.theirs(&theirs, 0..8, Access::REMOTE_READ | Access::REMOTE_WRITE);
    let ours = ends.ours([1u64, 2, 0].map(u64::to_ne_bytes).concat());
    let (place, word) = (registration.remote(0), |region: &Region, at: usize| {
        let mut bytes = [0; 8];
        region.copy_out(at, &mut bytes).expect("a word");
        u64::from_ne_bytes(bytes)
    });
    let [first, second] = [(); 2].map(|()| ends.op());
    let (one, two) = (ours.registration.local(0, 8), ours.registration.local(8, 8));
    let mut posted = Vec::new();
    let mut post =
        |ends: &mut Ends<P>, op, call: &mut dyn FnMut(&mut P, PeerId) -> Result<Post, PortError>| {
            if ends.post(call).expect("accepted") == Post::Done {
                posted.push(op);
            }
        };
    let as_post = |changed| match changed {
        Changed::Done => Post::Done,
        Changed::Again => Post::Again,
        Changed::Over(_) => Post::Over,
    };
    let mut before = None;
    if order == Order::CHANGE_AFTER_CHANGE {
        post(ends, first, &mut |port, to| port.change(to, Change::Swap(1), place, first).map(as_post));
    } else {
        post(ends, first, &mut |port, to| port.put(to, one, place, first));
    }
    let (packets, notes) = (ends.packets, ends.notes.len());
    match order {
        Order::SEND_AFTER_PUT => post(ends, OpId(0), &mut |port, to| {
            port.send(to, b"after", &[]).map(|post| if post == Post::Done { Post::Over } else { post })
        }),
        Order::PUT_AFTER_PUT => post(ends, second, &mut |port, to| port.put(to, two, place, second)),
        // This put has no bytes, so an order of bytes cannot hold its notification back.
        Order::NOTE_AFTER_PUT => {
            let nothing = ours.registration.local(0, 0);
            post(ends, second, &mut |port, to| port.put_imm(to, nothing, place, 1, second));
        }
        Order::GET_AFTER_PUT => {
            let into = ours.registration.local(16, 8);
            post(ends, second, &mut |port, to| port.get(to, into, place, second));
        }
        _ => post(ends, second, &mut |port, to| {
            let changed = port.change(to, Change::Swap(2), place, second)?;
            if let Changed::Over(was) = changed {
                before = Some(was);
            }
            Ok(as_post(changed))
        }),
    }
    let seen = match order {
        Order::SEND_AFTER_PUT | Order::NOTE_AFTER_PUT => {
            assert!((0..POLLS_MAX).any(|_| {
                let told = ends.packets > packets || ends.notes.len() > notes;
                if !told {
                    ends.poll();
                }
                told
            }));
            word(&theirs, 0)
        }
        _ => 0,
    };
    for op in posted {
        let was = ends.wait(op).expect("it is allowed");
        if op == second {
            before = was.or(before);
        }
    }
    let overtakes = match order {
        Order::SEND_AFTER_PUT | Order::NOTE_AFTER_PUT => seen != 1,
        Order::PUT_AFTER_PUT | Order::CHANGE_AFTER_CHANGE => word(&theirs, 0) != 2,
        Order::GET_AFTER_PUT => word(&ours.region, 16) != 1,
        _ => before != Some(1),
    };
    ends.a.deregister(ours.registration);
    ends.b.as_mut().expect("it has not ended").deregister(registration);
    Some(overtakes)
}

/// A port keeps the orders that it claims.
fn claimed_orders_are_kept<P: Port>(ends: &mut Ends<P>) {
    let claimed = ends.caps().order;
    for order in ORDERS.into_iter().filter(|&order| claimed.contains(order)) {
        for round in 0..50 {
            assert_eq!(overtakes(ends, order), Some(false), "{order:?}, round {round}");
        }
    }
}

/// Calls every case over one medium.
pub(crate) fn all_cases<P: Port>(ends: impl Fn() -> Ends<P>) {
    honest_cases(&ends);
    cases_of_refusal(ends);
}

/// Calls the cases in which the peer lives and grants each request.
pub(crate) fn honest_cases<P: Port>(ends: impl Fn() -> Ends<P>) {
    bytes_arrive_exactly(&mut ends());
    misuse_is_an_error_of_the_call(&mut ends());
    suspended_registrations_open_nothing(&mut ends());
    words_are_changed_in_one_step(&mut ends());
    claimed_orders_are_kept(&mut ends());
}

/// Calls the cases in which the peer refuses an access, or ends.
pub(crate) fn cases_of_refusal<P: Port>(ends: impl Fn() -> Ends<P>) {
    refusals_are_errors_and_touch_nothing(&ends);
    the_end_of_a_peer_ends_operations(ends);
}
