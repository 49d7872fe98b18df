//! The way of a send: at once if nothing is in its way, else in its turn; and credit, which is what may be.

use samite_fabric::wire::{Flags, Header, Numbers, Protocol};
use samite_fabric::{Access, Exposure, PeerId, Port, PortError, Post, Region, Remote};
use smallvec::SmallVec;
use zerocopy::IntoBytes;

use super::timers::Timer;
use super::{Core, Engine};
use crate::choose::{Choice, Limits, choose, cost};
use crate::error::{Cause, Status};
use crate::peer::{Outgoing, Packet, Place, Standing};
use crate::request::{Buffer, Partner, Push, Request, State};
use crate::trace::event;
use crate::wire::{Eager, EagerHead, Hello, Rts, Way, control, kind};
use crate::{Lent, RequestId};

impl<P: Port> Engine<P> {
    /// Sends a message eagerly if it can go now: the path is known, nothing waits before it, there is credit
    /// and room.
    #[inline]
    pub(super) fn send_at_once(&mut self, index: u32, context: u32, tag: u64, data: &[u8]) -> bool {
        let core = &mut self.core;
        let peer = &mut core.peers[index];
        let Some((path, limits)) = &peer.path else { return false };
        let path = *path;
        if !peer.is_idle() || data.len() > limits.eager_max || peer.credit() < cost(data.len()) {
            return false;
        }
        let head = EagerHead {
            header: core.header(index, Protocol::P2p, kind::EAGER, Flags::empty(), context, core.now_ns),
            eager: Eager { tag: tag.into() },
        };
        match self.port.send(path, head.as_bytes(), data) {
            Ok(Post::Done) => {}
            // Whatever it is, it shows again when its turn comes.
            Ok(Post::Again) => return false,
            // Dropped here, so that a send that went need not find out whether there is something to drop.
            Err(error) => {
                drop(error);
                return false;
            }
        }
        let peer = &mut core.peers[index];
        peer.sent();
        peer.traffic.eager_sent += 1;
        peer.traffic.bytes_sent += data.len() as u64;
        peer.spent = peer.spent.wrapping_add(cost(data.len()));
        event!(TRACE, peer = peer.rank, tag, bytes = data.len(), "sent eagerly");
        true
    }

    /// Queues a message, and sends what can be sent of the queue.
    pub(super) fn send_later(
        &mut self,
        index: u32,
        context: u32,
        tag: u64,
        buffer: Buffer,
        exposure: Option<Exposure>,
        deadline_ns: u64,
    ) -> RequestId {
        let core = &mut self.core;
        let rank = core.peers[index].rank;
        event!(TRACE, peer = rank, tag, bytes = buffer.len(), "send begins");
        let state = State::AwaitingRoom { exposure: exposure.map(Box::new) };
        let request = Request::new(state, buffer, Partner::Rank(rank), context, tag, core.now_ns);
        let id = core.requests.insert(request);
        core.set_deadline(id, deadline_ns);
        let peer = &mut core.peers[index];
        if peer.answered && peer.is_idle() && matches!(self.begin_message(index, id), Ok(Turn::Sent)) {
            self.core.peers[index].sent();
            return id;
        }
        let core = &mut self.core;
        let peer = &mut core.peers[index];
        peer.messages.push_back(Outgoing::Message(id));
        if peer.path.is_some() {
            self.flush(index);
        } else {
            core.seek(index);
        }
        id
    }

    /// Does what events and calls left to do. Timers wait for the next poll: see [`Engine::drive_timed`].
    pub(super) fn drive<L: Lent>(&mut self, lent: &mut L) {
        self.drain(lent, None);
    }

    /// Does what events and calls left to do, and what is due, after a poll of the port that brought so many events.
    ///
    /// A deadline that has passed must not end a receive whose message lies in the port. So timers are taken in polls
    /// alone, and while polls bring events, the deadlines of receives wait for the next poll, up to [`LATE_NS`].
    pub(super) fn drive_timed<L: Lent>(&mut self, lent: &mut L, events: usize) {
        self.drain(lent, Some(events));
    }

    fn drain<L: Lent>(&mut self, lent: &mut L, polled: Option<usize>) {
        while let Some((index, place)) = self.core.callers.pop() {
            self.connect(index, &place);
        }
        self.sever();
        self.replenish();
        for _ in 0..self.core.movers.len().min(MOVES_MAX) {
            let Some(id) = self.core.movers.pop_front() else { break };
            self.advance(id, lent);
        }
        if let Some(events) = polled {
            // After the receives have moved what is there.
            self.take_timers(events > 0);
        }
        for _ in 0..self.core.senders.len() {
            let Some(index) = self.core.senders.pop_front() else { break };
            self.core.peers[index].listed = false;
            self.flush(index);
            // What the port had no room for is listed again, and comes before.
            if !self.core.peers[index].listed {
                self.push_on(index, lent);
                // A goodbye comes after.
                self.flush(index);
            }
        }
        for (region, registration) in std::mem::take(&mut self.core.retired) {
            self.port.deregister(registration);
            self.core.quarantine.reclaim(region);
        }
        self.core.quarantine.release();
    }

    /// Does what is due.
    fn take_timers(&mut self, events: bool) {
        let now_ns = self.core.now_ns;
        let mut put_off = Vec::new();
        while let Some((due_ns, timer)) = self.core.timers.take(now_ns) {
            match timer {
                Timer::Deadline(id) if events && now_ns - due_ns < LATE_NS && self.core.is_receiving(id) => {
                    put_off.push((due_ns, timer));
                }
                Timer::Deadline(id) => self.core.expire(id, due_ns),
                Timer::Greeting(index) => {
                    let peer = &self.core.peers[index];
                    let waits = peer.packets.front().is_some_and(Packet::is_hello);
                    if peer.standing == Standing::Alive && peer.path.is_some() && !peer.answered && !waits {
                        self.greet(index, Flags::empty());
                    }
                }
            }
        }
        for (due_ns, timer) in put_off {
            self.core.timers.set(due_ns, timer);
        }
    }

    /// Cuts off the peers that failed.
    fn sever(&mut self) {
        for path in std::mem::take(&mut self.core.severed) {
            self.port.fence_peer(path);
        }
    }

    /// Builds the path to a peer whose address became known, and greets it.
    fn connect(&mut self, index: u32, place: &Place) {
        let core = &mut self.core;
        if !core.expects(index, place.incarnation) {
            return;
        }
        // The path to a former life goes first: at the same address the port would give the same one again.
        self.sever();
        let core = &mut self.core;
        let peer = &mut core.peers[index];
        peer.incarnation = Some(place.incarnation);
        if peer.path.is_some() {
            return;
        }
        let path = match self.port.resolve(&place.address) {
            Ok(path) => path,
            Err(PortError::Exhausted { what, hint }) => return core.exhausted(index, what, &hint),
            Err(error) => return core.bury(index, Cause::Unreachable(error.to_string())),
        };
        peer.path = Some((path, Limits::new(self.port.caps_for(path), &core.config)));
        peer.asked = true;
        self.greet(index, Flags::empty());
    }

    /// Puts a hello before all that waits for a peer.
    fn greet(&mut self, index: u32, flags: Flags) {
        let core = &mut self.core;
        let peer = &mut core.peers[index];
        let address = self.port.address().0;
        let hello = Hello {
            secret: core.identity.secret,
            to_incarnation: peer.incarnation.unwrap_or(0).into(),
            address_len: u16::try_from(address.len()).unwrap_or(u16::MAX).into(),
            reserved: [0; 2],
        };
        let mut body = SmallVec::from_slice(hello.as_bytes());
        body.extend_from_slice(&address);
        peer.packets.push_front(Packet { protocol: Protocol::Control, kind: control::HELLO, flags, body });
        core.list(index);
    }

    /// Gives starving peers credit out of what the budget leaves, and tells those that are short of it.
    fn replenish(&mut self) {
        let core = &mut self.core;
        // Crumbs would cost a packet each.
        let least = u32::try_from(core.config.window_min / 2).unwrap_or(u32::MAX);
        for _ in 0..core.starving.len() {
            let core = &mut self.core;
            let Some(index) = core.starving.pop_front() else { break };
            let held = core.credit_out + core.unexpected_cost;
            let room =
                u32::try_from((core.config.unexpected_max as u64).saturating_sub(held)).unwrap_or(u32::MAX);
            let peer = &mut core.peers[index];
            peer.starving = false;
            if peer.standing != Standing::Alive || !peer.heard {
                continue;
            }
            let wanted = peer.window.saturating_sub(peer.unused());
            let given = if room >= least.min(wanted) { wanted.min(room) } else { 0 };
            peer.given = peer.given.wrapping_add(given);
            core.credit_out += u64::from(given);
            let is_short =
                peer.given != peer.told && peer.known() < peer.window / 4 && peer.packets.is_empty();
            // What waits for room carries it: a hello, mostly. Before an answer nothing else goes.
            let carrier = peer.packets.front().filter(|packet| peer.answered || packet.is_hello());
            let is_carried = given > 0 && carrier.is_some();
            if std::mem::take(&mut peer.hungry) && !is_carried || is_short {
                let flags = if given == 0 { Flags::EXHAUSTED } else { Flags::empty() };
                match peer.answered {
                    true => core.enqueue(index, Packet::credit(flags)),
                    false => self.greet(index, flags),
                }
            }
            let core = &mut self.core;
            if core.peers[index].unused() < core.peers[index].window / 2 {
                // The budget is used up: again when it has room.
                core.starve(index);
            }
        }
    }

    /// Sends what can be sent to a peer, in order.
    fn flush(&mut self, index: u32) {
        loop {
            let core = &self.core;
            let peer = &core.peers[index];
            // Without a path it is listed again when there is one.
            let Some((path, _)) = peer.path else { return };
            let is_packet = !peer.packets.is_empty();
            let is_hello = peer.packets.front().is_some_and(Packet::is_hello);
            // Until it has answered it is sent nothing but hellos, all of number 0: of those any may be lost. It is
            // listed again then.
            if !is_hello && !peer.answered {
                return;
            }
            let turn = match (peer.packets.front(), peer.messages.front()) {
                (Some(packet), _) => {
                    let mut header =
                        core.header(index, packet.protocol, packet.kind, packet.flags, 0, core.now_ns);
                    if is_hello {
                        header.sequence = 0.into();
                    }
                    self.port.send(path, header.as_bytes(), &packet.body).map(Turn::of)
                }
                (None, Some(Outgoing::Message(id))) => self.begin_message(index, *id),
                // What has begun as a stream is as good as sent, and comes before.
                (None, Some(Outgoing::Goodbye)) if core.streams_to(index) => return,
                (None, Some(Outgoing::Goodbye)) => {
                    let flags = Flags::URGENT;
                    let header = core.header(index, Protocol::Control, control::BYE, flags, 0, core.now_ns);
                    self.port.send(path, header.as_bytes(), &[]).map(Turn::of)
                }
                (None, None) => return,
            };
            let core = &mut self.core;
            let peer = &mut core.peers[index];
            match turn {
                Ok(turn @ (Turn::Sent | Turn::Skipped)) => {
                    if is_packet {
                        peer.packets.pop_front();
                    } else if let Some(Outgoing::Goodbye) = peer.messages.pop_front() {
                        peer.bye = Some(peer.sequence);
                        peer.sent();
                        core.end_called_for(index);
                        continue;
                    }
                    match turn {
                        Turn::Sent if is_hello => core.greeted(index),
                        Turn::Sent => peer.sent(),
                        _ => {}
                    }
                }
                Ok(Turn::NoRoom) => {
                    core.counters.again += 1;
                    return core.list(index);
                }
                // Listed again when the answer comes.
                Ok(Turn::NoCredit) if peer.asked => return,
                Ok(Turn::NoCredit) => {
                    peer.asked = true;
                    peer.packets.push_back(Packet::credit(Flags::STARVED));
                }
                Err(PortError::PeerGone(_)) => return core.bury(index, Cause::Lost),
                // Of the first packet: later ones find the path there.
                Err(PortError::Exhausted { what, hint }) if is_hello => {
                    return core.exhausted(index, what, &hint);
                }
                Err(error) => return core.bury(index, Cause::Unreachable(error.to_string())),
            }
        }
    }

    /// Sends the first packet of a message: with its data or alone.
    fn begin_message(&mut self, index: u32, id: RequestId) -> Result<Turn, PortError> {
        let core = &mut self.core;
        let peer = &core.peers[index];
        let Some((path, limits)) = peer.path else { return Ok(Turn::NoRoom) };
        // One that ended while it waited is not sent.
        let Some(request @ Request { state: State::AwaitingRoom { exposure }, .. }) = core.requests.get(id)
        else {
            return Ok(Turn::Skipped);
        };
        let (len, tag, context, born_ns) =
            (request.buffer.len(), request.tag, request.context, request.born_ns);
        let owned = !matches!(request.buffer, Buffer::Lent { .. }) && core.leaves_memory(&limits);
        let exposed = exposure.as_ref().map(|exposure| exposure.at);
        let choice = choose(len, &limits, peer.credit(), peer.exhausted, owned);
        let way = match (choice, &request.buffer) {
            _ if let Some(at) = exposed => Way::Read(at),
            (Choice::Wait, _) => return Ok(Turn::NoCredit),
            (Choice::Eager, Buffer::Owned(memory)) => {
                let head = EagerHead {
                    header: core.header(index, Protocol::P2p, kind::EAGER, Flags::empty(), context, born_ns),
                    eager: Eager { tag: tag.into() },
                };
                let turn = self.port.send(path, head.as_bytes(), memory.as_bytes()).map(Turn::of)?;
                if matches!(turn, Turn::Sent) {
                    let peer = &mut core.peers[index];
                    peer.traffic.eager_sent += 1;
                    peer.traffic.bytes_sent += len as u64;
                    peer.spent = peer.spent.wrapping_add(cost(len));
                    event!(TRACE, peer = peer.rank, tag, bytes = len, "sent eagerly");
                    let status = Status { source: peer.rank, tag, bytes: len };
                    core.finish(id, Ok(status));
                }
                return Ok(turn);
            }
            (Choice::Pull, _) => Way::Pull(self.register(id, path)?),
            (Choice::Stream, _) => Way::Stream,
            _ => Way::Push,
        };
        let core = &mut self.core;
        // It goes without, but the next one would rather have credit.
        let peer = &core.peers[index];
        let asks = way == Way::Push && len <= limits.stream_max && !peer.asked && !peer.exhausted;
        let flags = if asks { Flags::STARVED } else { Flags::empty() };
        let header = core.header(index, Protocol::P2p, kind::RTS, flags, context, born_ns);
        let rts = Rts::new(tag, len, id.to_wire(), way);
        let turn = self.port.send(path, header.as_bytes(), rts.as_bytes()).map(Turn::of)?;
        if let (Turn::Sent, Some(request)) = (turn, core.requests.get_mut(id)) {
            let peer = &mut core.peers[index];
            peer.asked |= asks;
            peer.traffic.bytes_sent += len as u64;
            if way == Way::Stream {
                peer.traffic.eager_sent += 1;
                peer.spent = peer.spent.wrapping_add(cost(len));
                request.state = State::Pushing(Box::new(Push { recv: None, called: 0..len }));
                peer.pushes.push_back(id);
                core.list(index);
            } else {
                peer.traffic.rendezvous_sent += 1;
                let exposure = match &mut request.state {
                    State::AwaitingRoom { exposure } => exposure.take(),
                    _ => None,
                };
                request.state = State::AwaitingMatch { revoked: false, exposure };
            }
            event!(TRACE, peer = core.peers[index].rank, tag, bytes = len, ?way, "announced");
        }
        Ok(turn)
    }

    /// Sends the bytes of a message that has just begun as a stream, as far as the port has room: the receiver takes
    /// the first while the next are copied.
    pub(super) fn stream_at_once<L: Lent>(&mut self, index: u32, id: RequestId, lent: &L) {
        if self.core.requests.get(id).is_some_and(|request| matches!(request.state, State::Pushing(_))) {
            self.push_on(index, lent);
        }
    }

    /// Lets the receiver of a message read its bytes where they are, if it may and can.
    #[inline]
    pub(super) fn expose(&mut self, index: u32, data: &[u8]) -> Option<Exposure> {
        let (path, limits) = self.core.peers[index].path.as_ref()?;
        if data.len() < limits.read_min { None } else { self.port.expose(*path, data) }
    }

    /// Makes a send's memory reachable for its receiver, once.
    fn register(&mut self, id: RequestId, path: PeerId) -> Result<Remote, PortError> {
        let Some(request) = self.core.requests.get_mut(id) else { return Err(PortError::PeerGone(path)) };
        match std::mem::replace(&mut request.buffer, Buffer::Gone) {
            Buffer::Owned(memory) => {
                let region = Region::new(memory);
                match self.port.register(path, &region, Access::REMOTE_READ) {
                    Ok(registration) => {
                        request.buffer = Buffer::Registered { region, registration };
                        Ok(registration.remote(0))
                    }
                    Err(error) => {
                        request.buffer = region.reclaim().map_or(Buffer::Gone, Buffer::Owned);
                        Err(error)
                    }
                }
            }
            // An attempt before this one found no room for the packet.
            Buffer::Registered { region, registration } => {
                request.buffer = Buffer::Registered { region, registration };
                Ok(registration.remote(0))
            }
            Buffer::Lent { .. } | Buffer::Gone => Err(PortError::PeerGone(path)),
        }
    }
}

impl Core {
    /// Whether bytes are to be sent to a peer that follow their envelope.
    fn streams_to(&self, index: u32) -> bool {
        let is_stream = |request: &Request| match &request.state {
            State::Pushing(push) => push.recv.is_none(),
            _ => false,
        };
        self.peers[index].pushes.iter().any(|&id| self.requests.get(id).is_some_and(is_stream))
    }

    /// Wants the address of a peer, unless that is known, or wanted already.
    pub(super) fn seek(&mut self, index: u32) {
        let peer = &mut self.peers[index];
        if peer.path.is_none() && !std::mem::replace(&mut peer.sought, true) {
            self.wanted.push(peer.rank);
        }
    }

    /// The header of the next packet to a peer. `since_ns` is when what causes it began.
    #[inline(always)]
    pub(super) fn header(
        &self,
        index: u32,
        protocol: Protocol,
        kind: u8,
        flags: Flags,
        context: u32,
        since_ns: u64,
    ) -> Header {
        let peer = &self.peers[index];
        let numbers = Numbers {
            sender: self.identity.rank,
            incarnation: self.identity.incarnation,
            sequence: peer.sequence,
            ack: peer.expected,
            grant: peer.given,
            age: u16::try_from(self.now_ns.saturating_sub(since_ns) / 64_000).unwrap_or(u16::MAX),
            // The address came with the incarnation that listens there.
            to: peer.incarnation.unwrap_or(0) as u16,
            context,
        };
        Header::with(protocol, kind, flags, numbers)
    }

    /// Accounts for a hello that the port took. It will be repeated until a packet comes that acknowledges it, each
    /// time after twice as long.
    fn greeted(&mut self, index: u32) {
        let peer = &mut self.peers[index];
        peer.sequence = peer.sequence.max(1);
        peer.told = peer.given;
        let wait_ns = ANSWER_WITHIN_NS.saturating_mul(1 << peer.greetings.min(20));
        peer.greetings += 1;
        self.timers.set(self.now_ns.saturating_add(wait_ns), Timer::Greeting(index));
    }

    /// Puts a packet behind those that wait for a peer.
    pub(super) fn enqueue(&mut self, index: u32, packet: Packet) {
        self.peers[index].packets.push_back(packet);
        self.list(index);
    }

    /// Notes that there is something to send to a peer.
    pub(super) fn list(&mut self, index: u32) {
        let peer = &mut self.peers[index];
        if !peer.listed {
            peer.listed = true;
            self.senders.push_back(index);
        }
    }

    /// Doubles the credit that a peer may hold: it ran out of it, and waits to know.
    pub(super) fn widen(&mut self, index: u32) {
        let most = self.config.window_max.min(self.config.unexpected_max);
        let peer = &mut self.peers[index];
        peer.window = peer.window.saturating_mul(2).min(u32::try_from(most).unwrap_or(u32::MAX / 4));
        peer.hungry = true;
        self.starve(index);
    }
}

/// Transfers that one call looks at: however many there are, it ends soon.
const MOVES_MAX: usize = 64;

/// How late the deadline of a receive may be while polls bring events. One poll takes a limited number of packets, so a
/// long message that has arrived takes several; another peer that never pauses must not put a deadline off for ever.
const LATE_NS: u64 = 1_000_000;

/// How long a hello waits for its answer before it is repeated. Providers do lose what they took for a connection that
/// was about to be: libfabric's net, and its tcp of later versions, when both ends connect at once, and one of them had
/// a connection before to a process that is gone. (The room of that connection is used again, and keeps the number of
/// that process: xnet_process_connreq then takes the request that the other end has just withdrawn for one of a new
/// process, and closes the good connection for it. prov/net/src/xnet_rdm_cm.c at 1.17.0, prov/tcp to 2.0.0.) More than
/// a peer takes that shares its core with dozens of others.
const ANSWER_WITHIN_NS: u64 = 250_000_000;

/// What became of the first in the queue.
#[derive(Clone, Copy, Debug)]
enum Turn {
    Sent,
    /// It is over already.
    Skipped,
    NoRoom,
    NoCredit,
}

impl Turn {
    fn of(post: Post) -> Self {
        match post {
            Post::Done => Self::Sent,
            Post::Again => Self::NoRoom,
        }
    }
}
