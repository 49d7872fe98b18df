//! A simulated run: random ranks, network, traffic and faults, all from a seed.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use samite_fabric::SplitMix64;
use samite_fabric::layout::Signature;
use samite_fabric::link::first_incarnation;
use samite_fabric::sim::{Config as NetConfig, Cut, Net};
use samite_p2p::{Cause, Config, Engine, Error, Identity, Pattern, RequestId, Time, Typed, WorldRank};

use crate::comms::{Created, Place, Plans};
use crate::ledger::{Ledger, Losses, Message, Mode, Process, RecvEnd, SendEnd, require};
use crate::rank::{Buffer, NEVER, Rank, pattern};

const CONTEXTS: u32 = 2;
const CLASSES: u64 = 3;
/// The mean number of steps between two lulls.
const LULL_EVERY: u64 = 60;
/// The largest number of rounds of polls in a lull. Usually everything under way has arrived by then; if not, the lull
/// ends, and no message is noted as arrived.
const LULL_ROUNDS: u32 = 200;
/// The number of claimed messages at which a rank claims no further message early.
const CLAIMS_MAX: usize = 8;
/// A tag that no message has.
const SILENT: u64 = u64::MAX;
/// Rounds of polls within which the run must come to rest, so that an exchange without end fails. On a slow network a
/// run has needed 483,000 rounds until all its messages had arrived.
const ROUNDS_MAX: u32 = 2_000_000;
/// The number of bytes that the engine counts for an envelope.
const ENVELOPE: u64 = 96;
/// A budget for envelopes that no run uses up.
const ENVELOPES_PLENTY: usize = 1 << 20;
/// Virtual time after the end of the traffic within which all operations must end.
const DRAIN_NS: u64 = 10_000_000_000;

/// The counts of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Summary {
    pub(crate) hash: u64,
    pub(crate) virtual_ns: u64,
    pub(crate) messages: usize,
    pub(crate) received: usize,
    pub(crate) truncated: usize,
    /// Messages that were received as elements of other types.
    pub(crate) mistyped: usize,
    /// Rounds of partitioned sends and receives that ended successfully.
    pub(crate) rounds: usize,
    /// Epochs of windows that were opened.
    pub(crate) epochs: usize,
    pub(crate) not_delivered: usize,
    pub(crate) unknown: usize,
    pub(crate) unmatched: usize,
    pub(crate) killed: usize,
    pub(crate) restarted: usize,
    pub(crate) paused: usize,
    pub(crate) cut: usize,
    pub(crate) left: usize,
    pub(crate) forged: usize,
    /// The number of packets with several messages that the ranks alive at the end have sent.
    pub(crate) bundles: u64,
    pub(crate) created: Created,
}

impl Summary {
    /// Returns the number of faults injected into ranks and into the network between them. Does not count the network's
    /// ordinary behaviour: storms of `Again`, delays, late completions.
    pub(crate) fn faults(&self) -> usize {
        self.killed + self.restarted + self.paused + self.cut + self.left + self.forged
    }
}

/// Runs one seed.
///
/// If `names` is given, ranks also create and close communicators, and the numbers of contexts have `names` bits.
pub(crate) fn run(seed: u64, names: Option<u32>, verbose: bool) -> Result<Summary, String> {
    let mut run = Run::new(seed, names);
    if verbose {
        run.net.record();
    }
    let result = run.play();
    if verbose {
        run.print_trace(result.is_err());
    }
    result.map(|()| run.summary())
}

pub(crate) struct Run {
    pub(crate) net: Net,
    pub(crate) rng: SplitMix64,
    caps_fence: bool,
    config: Config,
    pub(crate) size: u32,
    /// The number of bits of a context's number, if the ranks create communicators.
    pub(crate) names: Option<u32>,
    pub(crate) plans: Plans,
    secret: [u8; 16],
    /// True if the launcher reports how the process of a rank ends after the rank has said goodbye.
    is_watched: bool,
    pub(crate) ranks: Vec<Option<Rank>>,
    incarnations: Vec<u32>,
    /// For each pair of ranks: the incarnation of the second rank that was last introduced to the first rank.
    told: BTreeMap<(u32, u32), u32>,
    /// Pending reports of the launcher: the time, the rank that gets the report, and the rank that it is about.
    notices: BTreeSet<(u64, u32, u32)>,
    pub(crate) ledger: Ledger,
    pub(crate) losses: Losses,
    /// Ranks whose latest incarnation left in good order.
    left: BTreeSet<u32>,
    /// The choices of types. They come from numbers of their own, so that a run without types does not depend on them.
    types: SplitMix64,
    /// The ranks that check types. A restarted rank checks types as its earlier incarnation did.
    checking: BTreeSet<u32>,
    /// The choices of messages in partitions. They come from numbers of their own too.
    pub(crate) parts: SplitMix64,
    /// Present network cuts, by the two ranks, the smaller first.
    apart: BTreeMap<(u32, u32), Cut>,
    summary: Summary,
}

impl Run {
    fn new(seed: u64, names: Option<u32>) -> Self {
        let mut rng = SplitMix64::new(seed);
        let net_config = NetConfig::adverse(&mut rng);
        let caps_fence = net_config.caps.fence;
        let (packet_max, reused) = (net_config.caps.packet_max, !net_config.moves);
        let net = Net::new(rng.next_u64(), net_config);
        let sizes = if names.is_some() { [1, 2, 3, 4, 6, 8] } else { [3, 3, 3, 3, 15, 63] };
        let most = pick(&mut rng, &sizes);
        let size = 2 + rng.below(most) as u32;
        let mut config = Config::default();
        config.eager_max = pick(&mut rng, &[0, 64, 500, packet_max, 16 << 10]);
        config.stream_max = pick(&mut rng, &[0, 700, 5_000, 128 << 10]);
        config.read_min = pick(&mut rng, &[0, 2_000]);
        config.unexpected_max = pick(&mut rng, &[0, 1000, 20_000, 256 << 20]);
        config.envelopes_max = pick(&mut rng, &[0, 500, 5_000, 64 << 20, 64 << 20, 64 << 20]);
        config.window_min = pick(&mut rng, &[0, 300, 64 << 10]);
        config.window_max = pick(&mut rng, &[1000, 64 << 20]);
        config.pull_chunk = pick(&mut rng, &[300, 1000, 1 << 20]);
        config.pull_depth = pick(&mut rng, &[1, 2, 4]);
        config.push_window = pick(&mut rng, &[300, 700, 5_000, 1 << 20]);
        config.outbox_max = pick(&mut rng, &[0, 500, 5_000, 1 << 20, 1 << 20]);
        config.buffer_max = pick(&mut rng, &[0, 3_000, 30_000, 1 << 20]);
        // These come from numbers of their own, so that a seed still has the run that it had without puts.
        let mut later = SplitMix64::new(seed ^ 0x0070_7574);
        config.put_min = pick(&mut later, &[0, 600, 5_000, 1 << 40]);
        config.put_chunk = pick(&mut later, &[300, 1000, 1 << 20]);
        config.put_depth = pick(&mut later, &[1, 2, 4]);
        // The numbers of incarnations wrap, so some runs begin just before a number wraps or changes its sign. In them
        // all ranks count as restarted from the start.
        let wrapping = pick(&mut rng, &[1, u32::MAX, 0x7fff_ffff]);
        let begins_with_first = later.below(2) == 0;
        config.announced_max = pick(&mut later, &[1, 2, 16, 512]);
        config.bundle_max = pick(&mut later, &[0, 150, 1000, 4096]);
        config.bundle_delay_us = pick(&mut later, &[1, 100, 10_000]);
        config.registered_max = pick(&mut later, &[0, 1_000, 10_000, 4 << 20, 64 << 20]);
        let mut run = Self {
            net,
            caps_fence,
            config,
            size,
            names,
            plans: Plans::default(),
            secret: [rng.below(256) as u8; 16],
            is_watched: rng.below(2) == 0,
            rng,
            ranks: (0..size).map(|_| None).collect(),
            incarnations: vec![wrapping; size as usize],
            told: BTreeMap::new(),
            notices: BTreeSet::new(),
            ledger: Ledger::default(),
            losses: Losses { reused, ..Losses::default() },
            left: BTreeSet::new(),
            types: SplitMix64::new(seed ^ 0x7479_7065),
            checking: BTreeSet::new(),
            parts: SplitMix64::new(seed ^ 0x7061_7274),
            apart: BTreeMap::new(),
            summary: Summary::default(),
        };
        if begins_with_first {
            let first = |rank| first_incarnation(&run.secret, WorldRank(rank));
            run.incarnations = (0..size).map(first).collect();
        }
        run.net.note(format!("{size} ranks, {:?}", run.config));
        run.ledger.sides.may_refuse = run.config.envelopes_max < ENVELOPES_PLENTY;
        // In a third of the runs most ranks check types.
        if run.types.below(3) == 0 {
            run.checking = (0..size).filter(|_| run.types.below(4) > 0).collect();
        }
        for rank in 0..size {
            run.start(rank);
        }
        run
    }

    fn play(&mut self) -> Result<(), String> {
        let mut steps = 100 + self.rng.below(500);
        if self.names.is_some() {
            steps *= 4;
        }
        // The mean number of steps between two faults; 0 means no faults.
        let calm = pick(&mut self.rng, &[0, 60, 20, 8, 4, 2]);
        let send_bias = 2 + self.rng.below(4);
        // In half of the runs, messages are claimed when their first packet has arrived, and received late.
        let claims_early = self.rng.below(2) == 0;
        // In a third of the runs there are messages in partitions.
        let has_parts = self.parts.below(3) == 0;
        for _ in 0..steps {
            match self.rng.below(30) {
                0 => self.act_together()?,
                _ => self.act(send_bias)?,
            }
            if self.names.is_some() {
                self.act_on_comms();
                self.act_on_comms();
            }
            if has_parts {
                self.act_on_parts()?;
                self.act_on_parts()?;
            }
            if calm > 0 && self.rng.below(calm) == 0 {
                self.fault();
            }
            if self.rng.below(LULL_EVERY) == 0 {
                self.lull()?;
            }
            if self.rng.below(2) == 0 {
                self.poll_all(false)?;
                self.pass_time();
            }
            if claims_early && self.rng.below(2) == 0 {
                self.claim_early()?;
            }
            self.check_budgets()?;
        }
        self.drain()?;
        self.check_rest()?;
        self.note_open();
        self.ledger.audit(&self.losses)?;
        self.close()
    }

    /// Performs one random action of a rank.
    fn act(&mut self, send_bias: u64) -> Result<(), String> {
        let index = self.rng.below(u64::from(self.size)) as usize;
        let choice = self.rng.below(10);
        if choice < send_bias {
            return self.begin_send(index);
        }
        let (wanted, now) = (self.wanted(index), self.net.now_ns());
        let (buffer, victim, which) = (self.buffer(), self.rng.next_u64(), self.rng.next_u64());
        let typed = self.typed(index, None);
        let (ledger, rng) = (&mut self.ledger, &mut self.rng);
        let Some(rank) = self.ranks[index].as_mut().filter(|rank| rank.acts()) else { return Ok(()) };
        match (choice, pick_request(rank, victim)) {
            (8, Some(id)) => {
                self.net.note(format!("rank {index} gives up {id:?}"));
                match rng.below(4) {
                    0 => rank.forget(ledger, now, id),
                    1 => rank.set_deadline(ledger, id, now + rng.below(100_000)),
                    _ => rank.cancel(ledger, id),
                }
                Ok(())
            }
            (8, None) => Ok(()),
            (9, _) => {
                rank.claim(ledger, wanted)?;
                match rng.below(4) {
                    // The claimed message is received or discarded later.
                    0 | 1 => Ok(()),
                    2 => rank.receive_claimed(ledger, now, which, None, typed),
                    _ => rank.receive_claimed(ledger, now, which, Some(buffer), typed),
                }
            }
            _ => self.begin_receive(index, wanted),
        }
    }

    fn begin_send(&mut self, index: usize) -> Result<(), String> {
        let (mut to, place, class) = (self.any_rank(), self.place(index), self.rng.below(CLASSES));
        let Place { context, name, .. } = place;
        to = place.partner(to);
        let (bytes, buffer, deadline) = (self.length(), self.buffer(), self.deadline());
        let mode = match self.rng.below(10) {
            0 | 1 => Mode::Synchronous,
            2 => Mode::Buffered,
            3 => Mode::Ready,
            _ => Mode::Standard,
        };
        let typed = self.typed(index, Some(class));
        let known = self.incarnations[to as usize];
        let to_incarnation = (self.told.get(&(index as u32, to)) == Some(&known)).then_some(known);
        let Some(rank) = self.ranks[index].as_mut().filter(|rank| rank.acts()) else { return Ok(()) };
        self.net.note(format!(
            "rank {index} sends message {} of {bytes} bytes to {to}, {buffer:?}, {mode:?}",
            self.ledger.messages.len()
        ));
        let message = Message {
            from: rank.process,
            to,
            to_incarnation,
            context,
            name,
            class,
            bytes,
            mode,
            typed,
            end: None,
            receive: None,
            arrived: None,
        };
        rank.send(&mut self.ledger, self.net.now_ns(), message, buffer, deadline)
    }

    fn begin_receive(&mut self, index: usize, wanted: Pattern) -> Result<(), String> {
        let (buffer, deadline) = (self.buffer(), self.deadline());
        let typed = self.typed(index, (wanted.mask != 0).then_some(wanted.tag));
        // In most cases the receive has room for any message.
        let room = if self.rng.below(6) == 0 { self.length() } else { LENGTH_MAX };
        let Some(rank) = self.ranks[index].as_mut().filter(|rank| rank.acts()) else { return Ok(()) };
        self.net.note(format!(
            "rank {index} posts receive {} of {room} bytes for {wanted:?}, {buffer:?}",
            self.ledger.receives.len()
        ));
        rank.receive(&mut self.ledger, self.net.now_ns(), wanted, (room, typed), buffer, deadline)
    }

    /// Returns the types of an operation, if its rank checks types and they are not bytes. In most cases messages of a
    /// class have the types of that class.
    pub(crate) fn typed(&mut self, index: usize, class: Option<u64>) -> Option<Typed> {
        if !self.checking.contains(&(index as u32)) {
            return None;
        }
        let any = self.types.below(CLASSES);
        let kind = class.filter(|_| self.types.below(6) > 0).unwrap_or(any);
        let (name, size) = *[("u16", 2), ("f64", 8)].get(kind as usize)?;
        Some(Typed { signature: Signature::of_type(name, size), call: "simulated" })
    }

    fn wanted(&mut self, index: usize) -> Pattern {
        let (source, place) = (self.any_rank(), self.place(index));
        let (source, context) = (place.partner(source), place.context);
        let source = (self.rng.below(2) == 0).then_some(source);
        let class = self.rng.below(CLASSES);
        pattern(context, source, (self.rng.below(3) > 0).then_some(class))
    }

    fn buffer(&mut self) -> Buffer {
        if self.rng.below(2) == 0 { Buffer::Owned } else { Buffer::Lent }
    }

    fn deadline(&mut self) -> u64 {
        match self.rng.below(4) {
            0 => self.net.now_ns() + self.rng.below(1_000_000),
            _ => NEVER,
        }
    }

    /// Lets a rank claim a message that it has not received, if one waits there or has begun to arrive.
    fn claim_early(&mut self) -> Result<(), String> {
        let index = self.rng.below(u64::from(self.size)) as usize;
        let context = self.place(index).context;
        let Some(rank) = self.ranks[index].as_mut().filter(|rank| rank.acts()) else { return Ok(()) };
        if rank.engine.usage().unexpected_messages > 0
            && rank.claimed.len() < CLAIMS_MAX
            && rank.claim(&mut self.ledger, Pattern::any(context))?
        {
            self.net.note(format!("rank {index} has claimed {} messages", rank.claimed.len()));
        }
        Ok(())
    }

    /// Starts several operations together, as in a scope: if one fails, the others are cancelled.
    fn act_together(&mut self) -> Result<(), String> {
        let index = self.rng.below(u64::from(self.size)) as usize;
        let count = 2 + self.rng.below(3);
        let mut before = None;
        for _ in 0..count {
            let Some(rank) = self.ranks[index].as_ref().filter(|rank| rank.acts()) else { return Ok(()) };
            before = before.or_else(|| Some(rank.pending.keys().copied().collect::<BTreeSet<_>>()));
            if self.rng.below(2) == 0 {
                self.begin_send(index)?;
            } else {
                let wanted = self.wanted(index);
                self.begin_receive(index, wanted)?;
            }
        }
        if let (Some(rank), Some(before)) = (&mut self.ranks[index], before) {
            self.net.note(format!("rank {index} began {count} operations together"));
            rank.group(&before);
        }
        Ok(())
    }

    /// Lets everything under way arrive while no rank acts. Afterwards the claimed messages that were sent whole have
    /// arrived. In most cases the sender of one of these messages then ends.
    fn lull(&mut self) -> Result<(), String> {
        let mut idle = 0;
        for _ in 0..LULL_ROUNDS {
            let events = self.poll_all(true)?;
            let moved = self.pass_time();
            idle = if events == 0 && !moved { idle + 1 } else { 0 };
            if idle == 3 {
                break;
            }
        }
        if idle < 3 {
            return Ok(());
        }
        let mut senders = BTreeSet::new();
        for receiver in self.ranks.iter().flatten().filter(|rank| !rank.paused) {
            let claims = receiver.claimed.iter().filter_map(|(index, _)| self.ledger.receives[*index].claims);
            for claimed in claims {
                let message = &mut self.ledger.messages[claimed];
                let (from, to) = (message.from, receiver.process);
                let sender = self.ranks[from.rank as usize].as_ref();
                let is_running = sender
                    .is_some_and(|sender| sender.process == from && !sender.paused && sender.has_sent());
                let pair = (from.rank.min(to.rank), from.rank.max(to.rank));
                let may_be_lost = self.apart.contains_key(&pair) || self.losses.between(to, from);
                if is_running && !may_be_lost && message.end == Some(SendEnd::Sent) {
                    message.arrived = Some(to);
                    senders.insert(from.rank);
                }
            }
        }
        self.note_arrived();
        if let Some(&sender) = senders.first() {
            match self.rng.below(3) {
                0 => {}
                1 => self.leave(sender),
                _ => self.kill(sender),
            }
        }
        Ok(())
    }

    /// Notes in the ledger which messages have arrived whole. Called while nothing is under way, so the messages wait
    /// for a receive or have matched one.
    fn note_arrived(&mut self) {
        for message in &mut self.ledger.messages {
            let (Some(Some(sender)), Some(Some(receiver))) =
                (self.ranks.get(message.from.rank as usize), self.ranks.get(message.to as usize))
            else {
                continue;
            };
            let (from, to) = (message.from, receiver.process);
            let is_for = |incarnation| incarnation == to.incarnation;
            let takes_part =
                sender.process == from && !sender.paused && sender.has_sent() && !receiver.paused;
            let pair = (from.rank.min(to.rank), from.rank.max(to.rank));
            if message.end == Some(SendEnd::Sent)
                && takes_part
                && message.to_incarnation.map_or(!self.losses.has_ended(to.rank), is_for)
                && !self.apart.contains_key(&pair)
                && !self.losses.between(to, from)
                && !self.losses.between(from, to)
            {
                message.arrived = Some(to);
            }
        }
    }

    fn fault(&mut self) {
        let (a, b) = (self.any_rank(), self.any_rank());
        match self.rng.below(8) {
            // While a rank is dead, restarts are as frequent as kills.
            0 | 1 => match (0..self.size).find(|&rank| self.ranks[rank as usize].is_none()) {
                Some(dead) if self.rng.below(2) == 0 => self.restart(dead),
                _ => self.kill(a),
            },
            2 => {
                if let Some(rank) = &mut self.ranks[a as usize] {
                    rank.paused = true;
                    self.net.pause(a);
                    self.summary.paused += 1;
                }
            }
            3 => self.resume_all(),
            4 if a != b => {
                let cut = if self.rng.below(2) == 0 { Cut::Drop } else { Cut::Stall };
                let pair = (a.min(b), a.max(b));
                if let Entry::Vacant(vacant) = self.apart.entry(pair) {
                    vacant.insert(cut);
                    self.net.partition(a, b, cut);
                    self.summary.cut += 1;
                    self.lose(pair, cut);
                }
            }
            5 => self.heal_all(),
            6 => {
                let garbage: Vec<u8> = (0..self.rng.below(80)).map(|_| self.rng.below(256) as u8).collect();
                self.net.inject(a, &garbage);
                self.summary.forged += 1;
            }
            7 if self.rng.below(3) == 0 => self.leave(a),
            _ => {}
        }
    }

    fn start(&mut self, rank: u32) {
        let incarnation = self.incarnations[rank as usize];
        let identity = Identity { rank: WorldRank(rank), size: self.size, incarnation, secret: self.secret };
        let mut engine = Engine::new(self.net.start(rank), identity, self.config.clone());
        if self.is_watched {
            engine.expect_word();
        }
        if let Some(bits) = self.names {
            engine.cut_names(bits);
            if self.losses.has_ended(rank) {
                engine.expect_numbers();
            }
        }
        self.ranks[rank as usize] =
            Some(Rank::new(Process { rank, incarnation }, engine, self.config.buffer_max));
        self.told.retain(|&(whom, _), _| whom != rank);
        for (pair, cut) in self.apart.clone() {
            self.lose(pair, cut);
        }
        // Some ranks know each other's address from the start. Other ranks ask for an address, or receive it without
        // asking.
        for other in 0..self.size {
            if self.rng.below(2) == 0 {
                self.tell_later(rank, other);
            }
        }
    }

    fn kill(&mut self, rank: u32) {
        let Some(dead) = self.ranks[rank as usize].take() else { return };
        self.net.kill(rank);
        self.losses.killed.insert(dead.process);
        self.drop_notices(&dead);
        self.summary.killed += 1;
        for other in 0..self.size {
            self.tell_later(other, rank);
        }
    }

    /// Records the results of operations that an ended incarnation has not reported: the results of its sends are
    /// unknown, and its receives are given up.
    fn drop_notices(&mut self, dead: &Rank) {
        self.keep_counts(dead);
        for message in self.ledger.messages.iter_mut().filter(|message| message.from == dead.process) {
            message.end = message.end.or(Some(SendEnd::Unknown));
        }
        for receive in self.ledger.receives.iter_mut().filter(|receive| receive.at == dead.process) {
            receive.end = receive.end.or(Some(RecvEnd::GivenUp));
        }
    }

    fn restart(&mut self, rank: u32) {
        if self.left.remove(&rank) && self.is_watched {
            // Only failed ranks are restarted. So if this rank has left, another rank that has not received the goodbye
            // treats it as failed.
            self.losses.killed.insert(self.process(rank));
        }
        self.losses.followed.insert(self.process(rank));
        self.incarnations[rank as usize] = self.incarnations[rank as usize].wrapping_add(1);
        self.start(rank);
        self.summary.restarted += 1;
        for other in 0..self.size {
            self.tell_later(other, rank);
        }
    }

    /// Lets a rank leave in good order. The rank takes no further action.
    fn leave(&mut self, rank: u32) {
        let now = self.net.now_ns();
        let leaver = self.ranks[rank as usize].as_mut().filter(|rank| rank.acts());
        if let Some(leaver) = leaver
            && leaver.engine.unsent_answer().is_none()
        {
            self.net.note(format!("rank {rank} leaves"));
            leaver.leave(&mut self.ledger, now);
            self.summary.left += 1;
            self.losses.left.insert(leaver.process);
        }
    }

    /// Notes the incarnations between which a cut loses packets.
    fn lose(&mut self, (a, b): (u32, u32), cut: Cut) {
        if cut == Cut::Drop {
            self.losses.cut.insert((self.process(a), self.process(b)));
        }
    }

    /// Returns the latest incarnation of a rank.
    fn process(&self, rank: u32) -> Process {
        Process { rank, incarnation: self.incarnations[rank as usize] }
    }

    fn resume_all(&mut self) {
        for rank in self.ranks.iter_mut().flatten().filter(|rank| rank.paused) {
            rank.paused = false;
            self.net.resume(rank.process.rank);
        }
    }

    fn heal_all(&mut self) {
        for (a, b) in std::mem::take(&mut self.apart).into_keys() {
            self.net.heal(a, b);
        }
    }

    /// Schedules the launcher's report about `rank` to `whom`.
    fn tell_later(&mut self, whom: u32, rank: u32) {
        let time = self.net.now_ns() + self.rng.below(50_000);
        self.notices.insert((time, whom, rank));
    }

    fn tell(&mut self, whom: u32, rank: u32) -> Result<(), String> {
        let incarnation = self.incarnations[rank as usize];
        let is_alive = self.ranks[rank as usize].is_some();
        let Some(listener) = &mut self.ranks[whom as usize] else { return Ok(()) };
        if is_alive {
            self.told.insert((whom, rank), incarnation);
            listener.engine.introduce(WorldRank(rank), incarnation, self.net.address(rank))
        } else if self.left.contains(&rank) {
            self.net.note(format!("rank {whom} hears that {rank} has left"));
            listener.note_end(&self.ledger, Process { rank, incarnation });
            listener.engine.peer_left(WorldRank(rank), Some(incarnation))
        } else {
            self.net.note(format!("rank {whom} hears that {rank} died"));
            listener.note_end(&self.ledger, Process { rank, incarnation });
            listener.engine.peer_failed(WorldRank(rank), Some(incarnation), Cause::Died("killed".into()))
        }
        .map_err(|error| format!("{error:?}"))
    }

    fn poll_all(&mut self, lends: bool) -> Result<usize, String> {
        let (mut events, mut news) = (0, Vec::new());
        let now = self.net.now_ns();
        while self.notices.first().is_some_and(|notice| notice.0 <= now) {
            let Some((_, whom, rank)) = self.notices.pop_first() else { break };
            self.tell(whom, rank)?;
            events += 1;
        }
        for index in 0..self.size {
            let lends = lends || self.rng.below(4) > 0;
            let Some(rank) = self.ranks[index as usize].as_mut().filter(|rank| !rank.paused) else {
                continue;
            };
            events += rank.poll(&mut self.ledger, now, lends)?;
            let wanted: Vec<u32> = rank.engine.wanted().map(|rank| rank.0).collect();
            let failed = rank.engine.counters().failed_peers;
            if failed != rank.peers_failed {
                rank.peers_failed = failed;
                news.push(index);
            }
            if rank.leaving && rank.engine.closed() {
                if self.is_watched && self.rng.below(3) == 0 {
                    self.net.note(format!("rank {index} has said goodbye, and fails"));
                    self.losses.killed.insert(rank.process);
                } else {
                    self.net.note(format!("rank {index} has left"));
                    self.left.insert(index);
                }
                if let Some(gone) = self.ranks[index as usize].take() {
                    self.drop_notices(&gone);
                }
                for other in 0..self.size {
                    self.tell_later(other, index);
                }
                events += 1;
            }
            for wanted in wanted {
                self.tell_later(index, wanted);
            }
        }
        for rank in news {
            self.check_verdicts(rank)?;
        }
        Ok(events)
    }

    /// Moves the clock to the next event of the network, deadline or notice. Returns false if there is none.
    fn pass_time(&mut self) -> bool {
        let now = self.net.now_ns();
        let deadlines = self.ranks.iter().flatten().filter(|rank| !rank.paused);
        let deadlines = deadlines.flat_map(|rank| rank.pending.values().map(|pending| pending.deadline_ns));
        let creations = self.ranks.iter().flatten().filter(|rank| !rank.paused);
        let creations = creations.flat_map(|rank| rank.comms.deadlines());
        let deadline =
            deadlines.chain(creations).filter(|&deadline| deadline > now && deadline != NEVER).min();
        let notice = self.notices.first().map(|notice| notice.0.max(now));
        let next = [self.net.next_ns(), deadline, notice].into_iter().flatten().min();
        next.inspect(|&next| self.net.advance_to(next)).is_some()
    }

    /// Ends all faults, receives all sent messages and cancels the remaining requests. Nothing may be under way
    /// afterwards.
    fn drain(&mut self) -> Result<(), String> {
        self.net.note("the traffic ends".into());
        self.heal_all();
        self.resume_all();
        for whom in 0..self.size {
            for rank in 0..self.size {
                self.notices.insert((self.net.now_ns(), whom, rank));
            }
        }
        self.end_creations();
        self.settle()?;
        // A rank notices lost packets only by a gap in the sequence. If no packet follows, only the launcher's failure
        // detector can find the cut. So its reports are simulated here.
        for (a, b) in self.losses.cut.clone() {
            if (self.process(a.rank), self.process(b.rank)) == (a, b) {
                self.condemn(a.rank, b.rank)?;
                self.condemn(b.rank, a.rank)?;
            }
        }
        loop {
            self.settle()?;
            let mut changed = self.spread_verdicts()?;
            changed |= self.receive_unexpected()?;
            if !changed {
                break;
            }
        }
        self.finish_parts()?;
        for rank in self.ranks.iter_mut().flatten() {
            for id in rank.pending.keys().copied().collect::<Vec<_>>() {
                rank.cancel(&mut self.ledger, id);
            }
        }
        self.settle()?;
        let now = Time::from_nanos(self.net.now_ns());
        for rank in self.ranks.iter_mut().flatten() {
            rank.free_halves(&mut self.ledger.sides, now);
        }
        self.settle()
    }

    /// Runs until nothing happens any more.
    pub(crate) fn settle(&mut self) -> Result<(), String> {
        let end = self.net.now_ns() + DRAIN_NS;
        let (mut idle, mut rounds) = (0, 0);
        while idle < 3 {
            rounds += 1;
            let events = self.poll_all(true)?;
            let moved = self.pass_time();
            idle = if events == 0 && !moved { idle + 1 } else { 0 };
            require(self.net.now_ns() < end && rounds < ROUNDS_MAX, || "it never comes to rest".into())?;
        }
        Ok(())
    }

    fn condemn(&mut self, whom: u32, rank: u32) -> Result<(), String> {
        let incarnation = self.incarnations[rank as usize];
        match &mut self.ranks[whom as usize] {
            Some(judge) => judge
                .engine
                .peer_failed(WorldRank(rank), Some(incarnation), Cause::Died("cut off".into()))
                .map_err(|error| format!("{error:?}")),
            None => Ok(()),
        }
    }

    /// Reports to each rank which other ranks treat it as failed. Returns true if there was anything to report.
    fn spread_verdicts(&mut self) -> Result<bool, String> {
        let mut spread = false;
        for a in 0..self.size {
            for b in 0..self.size {
                let known = self.told.get(&(a, b)) == Some(&self.incarnations[b as usize]);
                if known && self.takes_for_failed(a, b) && !self.takes_for_failed(b, a) && self.is_alive(b) {
                    self.net.note(format!("rank {b} hears that {a} takes it for failed"));
                    self.condemn(b, a)?;
                    spread = true;
                }
            }
        }
        Ok(spread)
    }

    /// Returns the reason why rank `a` treats `b` as failed; `None` if `a` has ended or does not treat `b` as failed.
    fn verdict(&mut self, a: u32, b: u32) -> Option<Error> {
        let silent = Pattern::exact(0, b, SILENT);
        self.ranks[a as usize].as_mut()?.engine.probe(&silent).err()
    }

    /// Returns true if rank `a` treats `b` as failed, and not as a rank that left in good order.
    fn takes_for_failed(&mut self, a: u32, b: u32) -> bool {
        let verdict = self.verdict(a, b);
        matches!(verdict, Some(Error::PeerFailed { cause, .. }) if cause != Cause::Left)
    }

    fn is_alive(&self, rank: u32) -> bool {
        self.ranks[rank as usize].is_some()
    }

    fn receive_unexpected(&mut self) -> Result<bool, String> {
        let (mut any, now) = (false, self.net.now_ns());
        for rank in self.ranks.iter_mut().flatten().filter(|rank| !rank.leaving) {
            any |= self.names.is_some() && rank.discard_answers(now);
            let contexts = if self.names.is_some() { rank.comms.contexts() } else { (0..CONTEXTS).collect() };
            for context in contexts {
                while rank.claim(&mut self.ledger, Pattern::any(context))? {}
            }
            while !rank.claimed.is_empty() {
                let buffer = if self.rng.below(2) == 0 { Buffer::Owned } else { Buffer::Lent };
                rank.receive_claimed(&mut self.ledger, now, 0, Some(buffer), None)?;
                any = true;
            }
        }
        Ok(any)
    }

    /// Checks that the data that peers have sent ahead and may still send ahead, the envelopes, and the outbox stay
    /// within their budgets.
    fn check_budgets(&self) -> Result<(), String> {
        for rank in self.ranks.iter().flatten() {
            let usage = rank.engine.usage();
            let held = usage.unexpected + usage.credit_granted;
            require(held <= self.config.unexpected_max as u64, || format!("over the budget: {usage:?}"))?;
            // Each sender may exceed the budget by one envelope.
            let most = self.config.envelopes_max as u64 + ENVELOPE * u64::from(self.size);
            require(usage.envelopes <= most, || format!("over the budget: {usage:?}"))?;
            let most = self.config.outbox_max + self.config.buffer_max;
            require(usage.outbox <= most as u64, || format!("over the budget: {usage:?}"))?;
            let most = self.config.outbox_max as u64;
            require(usage.gathered <= most, || format!("over the budget: {usage:?}"))?;
            let most = self.config.registered_max as u64;
            require(usage.registered <= most, || format!("over the budget: {usage:?}"))?;
        }
        Ok(())
    }

    /// Checks that nothing is under way.
    fn check_rest(&mut self) -> Result<(), String> {
        for index in 0..self.size {
            self.check_verdicts(index)?;
            let Some(rank) = &self.ranks[index as usize] else { continue };
            let place = |what: &str| format!("rank {index} at rest: {what}: {:?}", rank.engine.usage());
            self.summary.bundles += rank.engine.counters().bundles;
            require(rank.pending.is_empty(), || {
                place(&format!("{} requests never end", rank.pending.len()))
            })?;
            let usage = rank.engine.usage();
            let all_live = self.losses.killed.is_empty() && self.losses.left.is_empty();
            let hang = !self.caps_fence && !all_live;
            require(usage.operations == 0 || hang, || place("operations"))?;
            require(usage.requests == 0, || place("requests"))?;
            require(usage.queued == 0, || place("queued packets"))?;
            require(usage.gathered == 0, || place("gathered messages"))?;
            let announced = ENVELOPE * self.ledger.sides.unpaired(rank.process, &self.losses) as u64;
            require(usage.unexpected == 0 && usage.envelopes <= announced, || place("unexpected messages"))?;
            let registered = rank.engine.port().registrations();
            require(usage.registered_used == 0, || place("slabs in use"))?;
            require(registered == usage.registrations, || place(&format!("{registered} registrations")))?;
        }
        Ok(())
    }

    /// Checks that no rank is treated as failed without a cause.
    fn check_verdicts(&mut self, rank: u32) -> Result<(), String> {
        for other in 0..self.size {
            // If `rank` does not know yet that a new incarnation of `other` has started, it may treat `other` as
            // failed.
            let heard = self.told.get(&(rank, other)) == Some(&self.incarnations[other as usize]);
            let excuse = self.losses.between(self.process(rank), self.process(other))
                || !heard && self.losses.has_ended(other);
            let verdict = self.verdict(rank, other).filter(|_| !excuse);
            require(verdict.is_none(), || format!("rank {rank} takes {other} for failed: {verdict:?}"))?;
        }
        Ok(())
    }

    /// Lets all ranks leave at the same time.
    fn close(&mut self) -> Result<(), String> {
        let now = self.net.now_ns();
        for rank in self.ranks.iter_mut().flatten() {
            rank.leave(&mut self.ledger, now);
        }
        self.losses.left.extend((0..self.size).map(|rank| self.process(rank)).collect::<Vec<_>>());
        self.settle()?;
        let left = self.ranks.iter().flatten().map(|rank| rank.process.rank).collect::<Vec<_>>();
        require(left.is_empty(), || format!("ranks {left:?} cannot leave"))
    }

    fn any_rank(&mut self) -> u32 {
        self.rng.below(u64::from(self.size)) as u32
    }

    /// Returns a context for traffic of a rank.
    fn place(&mut self, index: usize) -> Place {
        if self.names.is_some() {
            let comms = self.ranks[index].as_ref().map(|rank| &rank.comms);
            let which = self.rng.next_u64();
            return comms.map_or_else(Place::default, |comms| comms.place(which));
        }
        Place::of_job(self.rng.below(u64::from(CONTEXTS)) as u32)
    }

    fn length(&mut self) -> usize {
        let edge: usize = pick(&mut self.rng, &[0, 8, 64, 472, 512, 1000, 4096, 16 << 10]);
        let length = match self.rng.below(8) {
            0 => edge,
            1 => edge + 1,
            2 => edge.saturating_sub(1 + self.rng.below(60) as usize),
            3 => self.rng.below(LENGTH_MAX as u64) as usize,
            _ => self.rng.below(2000) as usize,
        };
        length.min(LENGTH_MAX)
    }

    fn summary(&self) -> Summary {
        let count =
            |wanted: &dyn Fn(&Message) -> bool| self.ledger.messages.iter().filter(|m| wanted(m)).count();
        let unmatched = self
            .ledger
            .receives
            .iter()
            .filter(|receive| matches!(receive.end, Some(RecvEnd::Unmatched { .. })));
        let short = |message: &Message| {
            message.receive.is_some_and(|receive| self.ledger.receives[receive].room < message.bytes)
        };
        let differs = |message: &Message| {
            message.receive.is_some_and(|receive| message.differs(&self.ledger.receives[receive]))
        };
        Summary {
            hash: self.net.trace_hash(),
            virtual_ns: self.net.now_ns(),
            messages: self.ledger.messages.len(),
            received: count(&|message| message.receive.is_some() && !short(message) && !differs(message)),
            truncated: count(&|message| short(message) && !differs(message)),
            mistyped: count(&differs),
            rounds: self.ledger.sides.rounds,
            epochs: 0,
            not_delivered: count(&|message| message.end == Some(SendEnd::NotDelivered)),
            unknown: count(&|message| message.end == Some(SendEnd::Unknown)),
            unmatched: unmatched.count(),
            created: self.created(),
            ..self.summary
        }
    }

    #[expect(clippy::print_stdout, reason = "this is what a replay is for")]
    fn print_trace(&self, failed: bool) {
        for event in self.net.take_trace() {
            println!("{event}");
        }
        for rank in self.ranks.iter().flatten().filter(|_| failed) {
            println!("{:?}", rank.engine);
        }
    }
}

const LENGTH_MAX: usize = 40_000;

fn pick_request(rank: &Rank, at: u64) -> Option<RequestId> {
    let at = at as usize % rank.pending.len().max(1);
    rank.pending.keys().nth(at).copied()
}

pub(crate) fn pick<T: Copy>(rng: &mut SplitMix64, choices: &[T]) -> T {
    choices[rng.below(choices.len() as u64) as usize]
}
