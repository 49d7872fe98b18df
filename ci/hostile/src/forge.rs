//! Forged packets of a member that knows the protocol and violates it.

use std::ops::Range;

use samite_fabric::Port;
use samite_fabric::wire::{Flags, Header, Item, Protocol};
use samite_p2p::{Engine, Group, WorldRank};
use zerocopy::IntoBytes;

use crate::input::Input;

pub(crate) const SECRET: [u8; 16] = [9; 16];
pub(crate) const INCARNATION: u32 = 7;

/// Kinds of packets, with their numbers on the wire (p2p/src/wire.rs).
const EAGER: u8 = 0;
const RTS: u8 = 1;
const CTS: u8 = 2;
const DATA: u8 = 3;
const FIN: u8 = 4;
const REVOKE: u8 = 5;
const ABORT: u8 = 6;
const LEAVE: u8 = 8;
const PART_INIT: u8 = 9;
const PART_ACCEPT: u8 = 10;
const PART_START: u8 = 11;
const PART_DATA: u8 = 12;
const PART_END: u8 = 13;
const INQUIRE: u8 = 14;
const VOID: u8 = 19;
const RETIRE: u8 = 20;
const ROLL_CALL: u8 = 21;
const PRESENT: u8 = 22;
const CONFIRM: u8 = 15;
const SYNC: u8 = 16;
const PLACE: u8 = 17;
const LANDED: u8 = 18;
const HELLO: u8 = 0;

/// Names and keys in the packets that a hostile member has received.
#[derive(Debug, Default)]
pub(crate) struct Seen(Vec<u64>);

const SEEN_MAX: usize = 64;

impl Seen {
    pub(crate) fn packet(&mut self, bytes: &[u8]) {
        let body = bytes.get(Header::LEN..).unwrap_or_default();
        for word in body.chunks_exact(8).take(5) {
            if self.0.len() == SEEN_MAX {
                self.0.remove(0);
            }
            self.0.push(u64::from_le_bytes(word.try_into().expect("8 bytes")));
        }
    }

    /// Returns a number that might be a valid name or key.
    pub(crate) fn number(&self, input: &mut Input<'_>) -> u64 {
        match input.byte() {
            small @ 0..64 => small.into(),
            64 => u64::MAX,
            65 => i64::MAX as u64,
            66 => 1 << 32,
            67 => input.u64(),
            len @ 68..128 => u64::from(len - 67) * 1000,
            index => match self.0.len() {
                0 => 0,
                len => self.0[usize::from(index) % len],
            },
        }
    }
}

/// Returns a packet of `rank` with the right incarnation and `sequence`, and with the errors that `input` selects.
/// `rank` is also the number by which the receiver knows that peer. The packet never claims another rank's identity and
/// incarnation: a member that knows the secret and claims both cannot be distinguished from that rank.
pub(crate) fn packet(input: &mut Input<'_>, seen: &Seen, rank: u32, sequence: u32) -> Vec<u8> {
    let choice = input.byte();
    let (protocol, kind, body) = match choice % 16 {
        0 => (Protocol::Control, HELLO, hello(input)),
        1 => (Protocol::Control, 1, Vec::new()),
        2 => (Protocol::Control, 2, Vec::new()),
        3 => {
            let (send, unmatched) = (seen.number(input), [0, 0, 0, 2, 1, 3][input.below(6)]);
            let len = [0, 1, 100, 400][input.below(4)];
            let rest = words(&[send, unmatched | (typed(send) << 8)]);
            (Protocol::P2p, SYNC, [&tag(input)[..], &rest, &vec![0xbd; len]].concat())
        }
        4 => {
            let len = [0, 1, 100, 400][input.below(4)];
            (Protocol::P2p, EAGER, [&tag(input)[..], &vec![0xbd; len]].concat())
        }
        5 | 6 => {
            let [len, send, key, address] = [(); 4].map(|()| seen.number(input));
            let mode = [0, 1, 4, 2][input.below(4)];
            let rest = words(&[len, send, key, address, mode | ((typed(send) << 8) & !0xffff)]);
            (Protocol::P2p, RTS, [&tag(input)[..], &rest].concat())
        }
        7 => match input.byte() % 4 {
            0 | 1 => (Protocol::P2p, CTS, words(&[(); 4].map(|()| seen.number(input)))),
            2 => (Protocol::P2p, PLACE, words(&[(); 6].map(|()| seen.number(input)))),
            _ => (Protocol::P2p, LANDED, words(&[(); 2].map(|()| seen.number(input)))),
        },
        8 => {
            let [recv, offset] = [(); 2].map(|()| seen.number(input));
            let len = [0, 1, 64, 440][input.below(4)];
            (Protocol::P2p, DATA, [words(&[recv, offset]), vec![0xbd; len]].concat())
        }
        9 | 10 => {
            let send = seen.number(input);
            (Protocol::P2p, FIN, words(&[send, input.below(7) as u64]))
        }
        11 => (Protocol::P2p, REVOKE, words(&[seen.number(input)])),
        12 => match input.byte() % 5 {
            0 => (Protocol::P2p, ABORT, words(&[seen.number(input)])),
            1 => {
                let from = u64::from(context(input));
                (Protocol::P2p, INQUIRE, words(&[from, from + u64::from(input.byte())]))
            }
            2 => {
                let [from, until, used] = [(); 3].map(|()| u64::from(context(input)));
                (Protocol::P2p, CONFIRM, words(&[from, until, used]))
            }
            3 => {
                let name = u64::from(context(input));
                (Protocol::P2p, PRESENT, words(&[name, u64::from(input.u32()) << 31]))
            }
            _ => {
                let kind = [LEAVE, VOID, RETIRE, ROLL_CALL][input.below(4)];
                let name = u64::from(context(input));
                // Any member may revoke a communicator, and then other members cannot use it. So the names of VOID are
                // those of contexts that are not open.
                let name = if kind == VOID { name | 1 << 40 } else { name };
                (Protocol::P2p, kind, words(&[name]))
            }
        },
        13 => (Protocol::P2p, input.byte(), input.take(48).to_vec()),
        14 => match input.byte() {
            kind @ 0..16 => (Protocol::Rma, kind, Vec::new()),
            choice => partitioned(input, seen, choice),
        },
        _ => (Protocol::Control, input.byte(), input.take(48).to_vec()),
    };
    let mut header = header(protocol, kind, rank, sequence);
    if choice & 16 != 0 {
        header.grant = input.u32().into();
    }
    if choice & 32 != 0 {
        header.ack = input.u32().into();
        header.context = context(input).into();
    }
    let flags = if choice & 64 != 0 { input.byte() } else { 0 };
    let body = if flags & Flags::BUNDLE.bits() != 0 { bundle(input, kind, &body) } else { body };
    let mut bytes = [header.as_bytes(), &body].concat();
    bytes[3] = flags;
    if choice & 192 == 192 {
        mutate(input, &mut bytes);
    }
    bytes
}

/// Returns a flag that the sender awaits no answer, in the low 8 bits, and a signature in the 48 bits above, which
/// follow from the sender's name for the message. In most cases both are 0.
fn typed(send: u64) -> u64 {
    match send % 8 {
        0..=3 => 0,
        // Signatures that receives of the engine under test have.
        4 => 1 | (0x0101_0101_0101 << 8),
        5 => 0x0202_0202_0202 << 8,
        6 => 1 | (0x0303_0303_0303 << 8),
        _ => 2,
    }
}

/// Returns the kind and the body of a packet of partitioned communication, with plausible numbers.
fn partitioned(input: &mut Input<'_>, seen: &Seen, choice: u8) -> (Protocol, u8, Vec<u8>) {
    let (kind, body) = match choice % 8 {
        0 | 1 => {
            let (send, len) = (seen.number(input), [0, 96, 96, 100][input.below(4)]);
            let partitions = [1, 2, 3, 96, 0][input.below(5)];
            (PART_INIT, [&tag(input)[..], &words(&[send, len, partitions, typed(send) >> 8])].concat())
        }
        2 => {
            let [send, recv] = [(); 2].map(|()| seen.number(input));
            (PART_ACCEPT, words(&[send, recv, [96, 96, 0, 100][input.below(4)]]))
        }
        3 => (PART_START, words(&[seen.number(input), input.below(4) as u64])),
        4..=6 => {
            let recv = seen.number(input);
            let (round, offset) = (input.below(4) as u64, [0, 0, 16, 32, 48, 95][input.below(6)]);
            let len = [0, 16, 32, 48, 96, 7][input.below(6)];
            (PART_DATA, [words(&[recv, round, offset]), vec![0xbd; len]].concat())
        }
        _ => (PART_END, words(&[seen.number(input), input.below(4) as u64])),
    };
    (Protocol::P2p, kind, body)
}

/// Returns the number of a context: in most cases of a context of the job, otherwise of a context that
/// [`open_contexts`] opens, or any number.
fn context(input: &mut Input<'_>) -> u32 {
    match input.byte() {
        context @ 0..8 => context.into(),
        8 => input.u32(),
        other => u32::from(other & 1),
    }
}

/// Opens one context for all ranks, and one for all ranks except rank 0, the hostile member.
pub(crate) fn open_contexts<P: Port>(engine: &mut Engine<P>, size: u32) {
    for (context, members) in
        CONTEXTS.step_by(2).zip([Group::range(WorldRank(0), size), Group::range(WorldRank(1), size - 1)])
    {
        let incarnations = (0..size).map(|rank| (WorldRank(rank), INCARNATION)).collect();
        let opened = engine.open_between(context.into(), members, None, &incarnations);
        assert_eq!(opened, Ok(true), "the name is free");
    }
}

/// The contexts that [`open_contexts`] opens. Contexts with smaller numbers belong to the job's world.
pub(crate) const CONTEXTS: Range<u32> = 2..6;

/// Returns a bundle whose items contain the message once or several times. The bundle is correct, or has a small error:
/// it has no item, an item has a wrong length, or the message of an item is itself a bundle.
fn bundle(input: &mut Input<'_>, kind: u8, body: &[u8]) -> Vec<u8> {
    let mut items = Vec::new();
    let mut nested = Vec::new();
    for _ in 0..[1, 2, 3, 4, 0][input.below(5)] {
        let body = if nested.is_empty() { body } else { &nested };
        let right = body.len() as u16;
        let len = [right, right, right, 0, right.wrapping_add(1), u16::MAX][input.below(6)];
        let item = Item { kind, reserved: input.byte(), len: len.into(), context: context(input).into() };
        items.extend_from_slice(item.as_bytes());
        items.extend_from_slice(body);
        if item.reserved & 7 == 7 {
            nested = items.clone();
        }
    }
    items
}

/// Returns a packet of `rank` with a message in the job's first context: an answer in the agreement with this tag, with
/// plausible votes, names, incarnations and choices (p2p/src/agreement.rs). `to` is the rank that gets the answer.
pub(crate) fn answer(input: &mut Input<'_>, rank: u32, to: u32, sequence: u32, tag: u64) -> Vec<u8> {
    let vote = [0, 0, 0, 1 << 32, (input.below(8) as u64) << 32 | 1][input.below(5)];
    let next = [6, 6, 8, 10, 1 << 32, u64::MAX][input.below(6)];
    let [attempt, answered, number] = std::array::from_fn(|_| input.below(4) as u64);
    let mut body = words(&[tag, vote, next, attempt, answered, number]);
    let incarnation = |rank: u32, number: u32| u64::from(rank) << 32 | u64::from(number);
    match input.below(6) {
        0 | 1 => body.extend(words(&[0])),
        2 | 3 => body.extend(words(&[1, incarnation(to, INCARNATION)])),
        4 => body.extend(words(&[1, incarnation(rank, INCARNATION + input.below(3) as u32)])),
        _ => {
            let (any, number) = (input.below(5) as u32, input.below(9) as u32);
            let count = [0, 1, 2, u64::MAX][input.below(4)];
            body.extend(words(&[count, incarnation(any, number), incarnation(to, INCARNATION)]));
        }
    }
    let mut small = || input.below(5) as u64;
    match small() {
        // The choices of some ranks, or a group of two ranks at most.
        0 => body.extend(words(&[1 << 32 | 1, 1, small(), small()])),
        1 => body.extend(words(&[1 << 32 | 1, 2 + small() / 2, small(), small(), small(), small()])),
        2 => body.extend(words(&[(1 + small() / 3) << 32 | small(), 1 + small() / 3])),
        _ => {
            for _ in 0..3 * small() {
                let number = small();
                let word = [number, 1 << 32 | number, 2 << 32 | number, number << 32 | 1, u64::MAX];
                body.extend(words(&[word[small() as usize]]));
            }
        }
    }
    [header(Protocol::P2p, EAGER, rank, sequence).as_bytes(), &body].concat()
}

/// Returns a correct first packet of `rank`.
pub(crate) fn greeting(rank: u32) -> Vec<u8> {
    let address = b"nowhere";
    let body = [&SECRET[..], &INCARNATION.to_le_bytes(), &[0; 4], &[address.len() as u8, 0, 0, 0], address];
    [header(Protocol::Control, HELLO, rank, 0).as_bytes(), &body.concat()].concat()
}

/// Returns the header of a packet of `rank` with the right incarnation.
fn header(protocol: Protocol, kind: u8, rank: u32, sequence: u32) -> Header {
    let mut header = Header::new(protocol, kind, Flags::empty());
    (header.sender, header.incarnation, header.to) =
        (rank.into(), INCARNATION.into(), (INCARNATION as u16).into());
    header.sequence = sequence.into();
    header
}

/// Returns a hello, correct or with a small error.
fn hello(input: &mut Input<'_>) -> Vec<u8> {
    let address = b"nowhere";
    let mut secret = SECRET;
    if input.below(4) == 0 {
        secret[input.below(16)] ^= 1;
    }
    let to = [INCARNATION, 0, INCARNATION + 1, u32::MAX][input.below(4)];
    let len = [address.len(), address.len(), 0, 0xffff][input.below(4)] as u16;
    let number = input.byte().to_le_bytes();
    [&secret[..], &to.to_le_bytes(), &number, &[0; 3], &len.to_le_bytes(), &[0; 2], address].concat()
}

/// Changes a part of a packet, but not its sender or the sender's incarnation.
fn mutate(input: &mut Input<'_>, bytes: &mut Vec<u8>) {
    match input.below(4) {
        0 => bytes.truncate(input.byte().into()),
        1 => bytes.extend(input.take(64)),
        _ => {
            for _ in 0..=input.below(4) {
                let at = input.below(bytes.len().clamp(1, 256));
                match bytes.get_mut(at) {
                    Some(byte) if !(4..12).contains(&at) => *byte ^= input.byte(),
                    _ => {}
                }
            }
        }
    }
}

fn tag(input: &mut Input<'_>) -> [u8; 8] {
    (input.below(4) as u64).to_le_bytes()
}

fn words(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}
