//! Verification of schedules, and their costs.
//!
//! [`verify`] takes the steps of all ranks and moves values that record their origin: see [`Violation`] for the rules
//! that it checks. A send ends only when its message is received, so a schedule that relies on the buffering of
//! messages does not end here, and is a violation. [`verify_partners`] checks the messages of one rank alone, for large
//! groups.

mod value;

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use samite_fabric::shm::board::BANKS;

use self::value::{Same, Value};
use crate::algorithms::exchange::Transfer;
use crate::algorithms::hosts::Hosts;
use crate::schedule::{Blocks, Buffer, Place, Plan, Span, Step, Steps};

/// The cost of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    /// The number of rounds, if in each round a rank can send one message and receive one.
    pub rounds: u32,
    /// The number of elements that each rank sends.
    pub sent: Vec<usize>,
}

impl Cost {
    /// Returns the largest number of elements that a rank sends.
    #[must_use]
    pub fn most_sent(&self) -> usize {
        self.sent.iter().copied().max().unwrap_or(0)
    }
}

/// A rule that a schedule violates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A step uses elements that the buffer does not have.
    OutOfBounds(u32, Step),
    /// A step writes to the input.
    WritesInput(u32, Step),
    /// A step reads elements that have no value yet.
    Undefined(u32, Step),
    /// A step uses elements of a message under way, and the step or the message writes to them.
    Races(u32, Step),
    /// The spans of a step overlap or have different lengths.
    Spans(u32, Step),
    /// A sent message has another length than its receive.
    Length {
        /// The sender.
        from: u32,
        /// The receiver.
        to: u32,
        /// The round of the message.
        round: u32,
    },
    /// A rank waits for a message for which its partner never takes a step, because the partner has none or is stuck
    /// itself.
    Stuck(u32),
    /// A rank has taken its last step while a message was under way.
    NotAwaited(u32),
    /// A step fetches from a rank of another host.
    OtherHost(u32, Step),
    /// A step on the board names an earlier piece than the step before, or publishes a piece again.
    Pieces(u32, Step),
    /// A rank fetches elements that the publication does not have, or expects another number of published elements.
    Publication(u32, Step),
    /// A rank's result is wrong at this element of the output.
    Result(u32, usize),
    /// The first rank sends messages to the second rank, or receives messages from it, for which the second rank has no
    /// matching step; or the second rank has such messages.
    Partners(u32, u32),
}

/// Verifies the schedules of all ranks of an operation, and returns the cost. `plan` returns the plan of each rank.
///
/// # Errors
/// Returns the first violation.
pub fn verify(size: u32, plan: impl Fn(u32) -> Plan) -> Result<Cost, Violation> {
    let plans: Vec<Plan> = (0..size).map(plan).collect();
    verify_steps(&plans, |at| plans[at.rank() as usize].steps(at))
}

/// Returns the cost of an operation, without a verification of its result. So the memory that this takes does not
/// depend on the number of elements.
///
/// # Errors
/// [`Violation::Length`], [`Violation::Stuck`].
pub fn cost(size: u32, plan: impl Fn(u32) -> Plan) -> Result<Cost, Violation> {
    let rank_of = |rank| Rank::without_values(plan(rank).steps(Place::new(rank, size)));
    let mut run = Run::new((0..size).map(rank_of), hosts_of(&plan(0)));
    run.finish()?;
    Ok(run.cost())
}

/// Verifies that the steps that `steps` returns for each rank carry out the plans.
fn verify_steps(plans: &[Plan], steps: impl Fn(Place) -> Steps) -> Result<Cost, Violation> {
    let run = run_steps(plans, steps)?;
    let mut reductions = Reductions::new(plans);
    for (number, rank) in (0..).zip(&run.ranks) {
        verify_result(number, rank, plans, &reductions)?;
        reductions.add(number);
    }
    Ok(run.cost())
}

/// Takes the steps that `steps` returns for each rank.
fn run_steps(plans: &[Plan], steps: impl Fn(Place) -> Steps) -> Result<Run, Violation> {
    let size = plans.len() as u32;
    let rank_of = |(rank, plan)| {
        let at = Place::new(rank, size);
        Rank::new(plan, at, steps(at))
    };
    let mut run = Run::new((0..size).zip(plans).map(rank_of), hosts_of(&plans[0]));
    run.finish()?;
    Ok(run)
}

/// Returns the hosts of the ranks, if each host has a board of its own.
fn hosts_of(plan: &Plan) -> Option<Arc<Hosts>> {
    match plan {
        Plan::TwoLevels(levels) => Some(Arc::clone(&levels.hosts)),
        _ => None,
    }
}

/// Verifies that the partners of one rank send and receive the messages that the rank receives and sends, and returns
/// the number of messages of the rank.
///
/// # Errors
/// [`Violation::Partners`].
pub fn verify_partners(size: u32, rank: u32, plan: impl Fn(u32) -> Plan) -> Result<usize, Violation> {
    let messages = |of: u32| {
        plan(of).steps(Place::new(of, size)).filter_map(|step| match step {
            Step::Send { to, round, from } => Some((to, (true, round, from.len))),
            Step::Receive { from, round, into } => Some((from, (false, round, into.len))),
            _ => None,
        })
    };
    let mut by_partner: HashMap<u32, Vec<_>> = HashMap::new();
    for (partner, message) in messages(rank) {
        by_partner.entry(partner).or_default().push(message);
    }
    for (&partner, own) in &by_partner {
        let theirs: Vec<_> =
            messages(partner).filter(|(to, _)| *to == rank).map(|(_, message)| message).collect();
        // The order of messages in one direction and with the same round is significant.
        let in_order = |messages: &[(bool, u32, usize)], sends: bool| {
            let mut messages: Vec<_> = messages
                .iter()
                .filter(|message| message.0 == sends)
                .map(|&(_, round, len)| (round, len))
                .collect();
            messages.sort_by_key(|(round, _)| *round);
            messages
        };
        for sends in [false, true] {
            if in_order(own, sends) != in_order(&theirs, !sends) {
                return Err(Violation::Partners(rank, partner));
            }
        }
    }
    Ok(by_partner.values().map(Vec::len).sum())
}

/// All ranks of an operation.
struct Run {
    ranks: Vec<Rank>,
    /// The messages for which only the sender, or only the receiver, has taken its step. The key is the sender, the
    /// receiver and the round. The flag is true if the sender has taken its steps. The list contains the numbers of
    /// these messages at the rank that has taken its steps, in the order of the steps.
    unmatched: HashMap<(u32, u32, u32), (bool, VecDeque<u64>)>,
    /// The publications on the board, by rank and piece.
    published: HashMap<(u32, u32), Publication>,
    /// The ranks that wait for an event on the board.
    at_board: Vec<u32>,
    /// The hosts of the ranks; `None` if all ranks share a board.
    hosts: Option<Arc<Hosts>>,
}

/// The data that a rank has published.
struct Publication {
    len: usize,
    /// The values; `None` if only the cost is computed.
    values: Option<Vec<Value>>,
    /// The round in which it is published.
    round: u32,
}

/// The state of one rank.
struct Rank {
    steps: Steps,
    /// The step that the rank cannot take yet.
    blocked: Option<Step>,
    /// The values of the elements; `None` if only the cost is computed.
    buffers: Option<[Vec<Option<Value>>; 3]>,
    /// The messages that no step has waited for, in the order in which they began.
    under_way: VecDeque<Message>,
    /// The number of the first message in `under_way`.
    first: u64,
    /// The round in which the rank takes its next step.
    time: u32,
    /// The first round in which the rank can send.
    may_send: u32,
    /// The first round in which the rank can receive.
    may_receive: u32,
    sent: usize,
    /// The piece of the latest step on the board.
    piece: u32,
    has_ended: bool,
}

/// One side of a message.
#[derive(Clone, Copy, Debug)]
struct Message {
    is_send: bool,
    span: Span,
    /// The first round in which this side can take part.
    begun: u32,
    /// The first round in which the message can travel, once both sides have taken their step.
    travels: Option<u32>,
}

impl Rank {
    fn new(plan: &Plan, at: Place, steps: Steps) -> Self {
        let lengths = [plan.input(at), plan.output(at), plan.scratch(at)];
        let mut buffers = lengths.map(|len| vec![None; len]);
        let (buffer, start) = contribution(plan, at);
        for (index, element) in buffers[buffer as usize][start].iter_mut().enumerate() {
            *element = Some(Value::of(at.rank(), index));
        }
        Self { buffers: Some(buffers), ..Self::without_values(steps) }
    }

    fn without_values(steps: Steps) -> Self {
        Self {
            steps,
            blocked: None,
            buffers: None,
            under_way: VecDeque::new(),
            first: 0,
            time: 0,
            may_send: 0,
            may_receive: 0,
            sent: 0,
            piece: 0,
            has_ended: false,
        }
    }

    /// Returns this rank's side of message `number`.
    fn side(&mut self, number: u64) -> &mut Message {
        &mut self.under_way[(number - self.first) as usize]
    }

    /// Returns the values of a span. Returns `None` if an element has no value yet.
    fn read(&self, span: Span) -> Option<Vec<Value>> {
        let buffer = &self.buffers.as_ref()?[span.buffer as usize];
        buffer[span.start..span.end()].iter().copied().collect()
    }

    fn write(&mut self, span: Span, values: Vec<Option<Value>>) {
        if let Some(buffers) = &mut self.buffers {
            buffers[span.buffer as usize][span.start..span.end()].copy_from_slice(&values);
        }
    }

    /// Waits until at most `except` messages are under way. Returns false if the partner of a message that must end has
    /// not taken its step yet. The rank receives the messages in the order of the rounds in which they can travel.
    fn wait(&mut self, except: usize) -> bool {
        let awaited = self.under_way.len().saturating_sub(except);
        if self.under_way.iter().take(awaited).any(|message| message.travels.is_none()) {
            return false;
        }
        let mut arrivals = Vec::new();
        for message in self.under_way.drain(..awaited) {
            match (message.is_send, message.travels) {
                (true, _) => self.time = self.time.max(message.begun + 1),
                (false, travels) => arrivals.extend(travels),
            }
        }
        arrivals.sort_unstable();
        for travels in arrivals {
            self.may_receive = self.may_receive.max(travels) + 1;
            self.time = self.time.max(self.may_receive);
        }
        self.first += awaited as u64;
        true
    }

    /// Checks the spans that a step reads and writes.
    fn check(&self, rank: u32, step: Step) -> Result<(), Violation> {
        let Some(buffers) = &self.buffers else { return Ok(()) };
        let (reads, writes) = match step {
            Step::Send { from, .. } | Step::Publish { from, .. } => (vec![from], None),
            Step::Receive { into, .. } | Step::Fetch { into, .. } => (vec![], Some(into)),
            Step::Copy { from, into } => (vec![from], Some(into)),
            Step::Reduce { from, into } => (vec![from, into], Some(into)),
            Step::Wait { .. } => (vec![], None),
        };
        if let Step::Copy { from, into } | Step::Reduce { from, into } = step
            && (from.overlaps(&into) || from.len != into.len)
        {
            return Err(Violation::Spans(rank, step));
        }
        if writes.is_some_and(|span| span.buffer == Buffer::Input) {
            return Err(Violation::WritesInput(rank, step));
        }
        if reads.iter().chain(&writes).any(|span| span.end() > buffers[span.buffer as usize].len()) {
            return Err(Violation::OutOfBounds(rank, step));
        }
        let races = |message: &Message| {
            let is_written = !message.is_send;
            writes.is_some_and(|span| span.overlaps(&message.span))
                || is_written && reads.iter().any(|span| span.overlaps(&message.span))
        };
        if self.under_way.iter().any(races) {
            return Err(Violation::Races(rank, step));
        }
        match reads.iter().all(|span| self.read(*span).is_some()) {
            true => Ok(()),
            false => Err(Violation::Undefined(rank, step)),
        }
    }
}

impl Run {
    fn new(ranks: impl Iterator<Item = Rank>, hosts: Option<Arc<Hosts>>) -> Self {
        let (unmatched, published) = (HashMap::new(), HashMap::new());
        Self { ranks: ranks.collect(), unmatched, published, at_board: Vec::new(), hosts }
    }

    /// Returns true if two ranks share a board.
    fn share_board(&self, one: u32, other: u32) -> bool {
        self.hosts.as_ref().is_none_or(|hosts| hosts.are_together(one, other))
    }

    /// Takes all steps of all ranks.
    fn finish(&mut self) -> Result<(), Violation> {
        let mut ready: Vec<u32> = (0..self.ranks.len() as u32).collect();
        while let Some(rank) = ready.pop() {
            self.advance(rank, &mut ready)?;
        }
        for (number, rank) in (0..).zip(&self.ranks) {
            if !rank.has_ended {
                return Err(Violation::Stuck(number));
            }
            if !rank.under_way.is_empty() {
                return Err(Violation::NotAwaited(number));
            }
        }
        Ok(())
    }

    fn cost(&self) -> Cost {
        let rounds = self.ranks.iter().map(|rank| rank.time).max().unwrap_or(0);
        Cost { rounds, sent: self.ranks.iter().map(|rank| rank.sent).collect() }
    }

    /// Takes the steps of a rank until it must wait for other ranks. Adds the ranks that can continue to `ready`.
    fn advance(&mut self, number: u32, ready: &mut Vec<u32>) -> Result<(), Violation> {
        while !self.ranks[number as usize].has_ended {
            let rank = &mut self.ranks[number as usize];
            let Some(step) = rank.blocked.take().or_else(|| rank.steps.next()) else {
                rank.has_ended = true;
                ready.append(&mut self.at_board);
                break;
            };
            rank.check(number, step)?;
            match step {
                Step::Send { to, round, from } => {
                    self.begin(number, (number, to, round), step, from, ready)?
                }
                Step::Receive { from, round, into } => {
                    self.begin(number, (from, number, round), step, into, ready)?;
                }
                Step::Publish { piece, .. } | Step::Fetch { piece, .. } => {
                    if !self.at_piece(number, piece, step, ready)? {
                        self.ranks[number as usize].blocked = Some(step);
                        self.at_board.push(number);
                        break;
                    }
                }
                Step::Copy { .. } | Step::Reduce { .. } if rank.buffers.is_none() => {}
                Step::Copy { from, into } => {
                    let values = rank.read(from).expect("the values were checked");
                    rank.write(into, values.into_iter().map(Some).collect());
                }
                Step::Reduce { from, into } => {
                    let (left, right) = (rank.read(from), rank.read(into));
                    let pairs = left.into_iter().flatten().zip(right.into_iter().flatten());
                    let values = pairs.map(|(left, right)| Some(left.before(right))).collect();
                    rank.write(into, values);
                }
                Step::Wait { except } => {
                    if !rank.wait(except as usize) {
                        rank.blocked = Some(step);
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes a rank's step on the board. Returns false if it must wait.
    fn at_piece(
        &mut self,
        number: u32,
        piece: u32,
        step: Step,
        ready: &mut Vec<u32>,
    ) -> Result<bool, Violation> {
        let rank = &mut self.ranks[number as usize];
        if piece < rank.piece
            || matches!(step, Step::Publish { .. }) && self.published.contains_key(&(number, piece))
        {
            return Err(Violation::Pieces(number, step));
        }
        if piece > rank.piece {
            rank.piece = piece;
            ready.append(&mut self.at_board);
        }
        match step {
            Step::Publish { from, .. } => Ok(self.publish(number, piece, from, ready)),
            Step::Fetch { from, .. } if !self.share_board(number, from) => {
                Err(Violation::OtherHost(number, step))
            }
            Step::Fetch { from, whole, start, into, .. } => {
                let Some(publication) = self.published.get(&(from, piece)) else { return Ok(false) };
                if publication.len != whole || start + into.len > whole {
                    return Err(Violation::Publication(number, step));
                }
                let rank = &mut self.ranks[number as usize];
                rank.time = rank.time.max(publication.round + 1);
                if let Some(values) = &publication.values {
                    rank.write(into, values[start..start + into.len].iter().copied().map(Some).collect());
                }
                Ok(true)
            }
            _ => unreachable!("the step uses the board"),
        }
    }

    /// Publishes a piece. Returns false if the room of an earlier piece is needed, which a rank has not finished.
    fn publish(&mut self, number: u32, piece: u32, from: Span, ready: &mut Vec<u32>) -> bool {
        let has_finished = |(other, rank): (u32, &Rank)| {
            rank.has_ended || rank.piece + BANKS as u32 > piece || !self.share_board(number, other)
        };
        if !(0..).zip(&self.ranks).all(has_finished) {
            return false;
        }
        let rank = &mut self.ranks[number as usize];
        let round = rank.time.max(rank.may_send);
        rank.may_send = round + 1;
        rank.time = rank.time.max(round + 1);
        rank.sent += from.len;
        let values = rank.buffers.is_some().then(|| rank.read(from).expect("the values were checked"));
        self.published.insert((number, piece), Publication { len: from.len, values, round });
        ready.append(&mut self.at_board);
        true
    }

    /// Takes a rank's step that sends or receives a message. If the partner has taken its step for the same message
    /// before, the message travels.
    fn begin(
        &mut self,
        number: u32,
        key: (u32, u32, u32),
        step: Step,
        span: Span,
        ready: &mut Vec<u32>,
    ) -> Result<(), Violation> {
        let rank = &mut self.ranks[number as usize];
        let is_send = matches!(step, Step::Send { .. });
        let begun = if is_send { rank.time.max(rank.may_send) } else { rank.time };
        if is_send {
            rank.may_send = begun + 1;
        }
        let message = Message { is_send, span, begun, travels: None };
        let own = rank.first + rank.under_way.len() as u64;
        rank.under_way.push_back(message);
        let (sends, waiting) = self.unmatched.entry(key).or_default();
        if waiting.is_empty() || *sends == message.is_send {
            *sends = message.is_send;
            waiting.push_back(own);
            return Ok(());
        }
        let Some(theirs) = waiting.pop_front() else { return Ok(()) };
        if waiting.is_empty() {
            self.unmatched.remove(&key);
        }
        let (from, to, round) = key;
        let (sent, received) = if message.is_send { (own, theirs) } else { (theirs, own) };
        self.travel((from, sent), (to, received)).ok_or(Violation::Length { from, to, round })?;
        ready.push(if number == from { to } else { from });
        Ok(())
    }

    /// Moves the values of a message, and determines its round. Returns `None` if the lengths differ.
    fn travel(&mut self, (from, sent): (u32, u64), (to, received): (u32, u64)) -> Option<()> {
        let send = *self.ranks[from as usize].side(sent);
        let receive = *self.ranks[to as usize].side(received);
        if send.span.len != receive.span.len {
            return None;
        }
        let travels = Some(send.begun.max(receive.begun));
        let sender = &mut self.ranks[from as usize];
        sender.sent += send.span.len;
        let values = if sender.buffers.is_some() { sender.read(send.span)? } else { Vec::new() };
        sender.side(sent).travels = travels;
        let receiver = &mut self.ranks[to as usize];
        receiver.side(received).travels = travels;
        receiver.write(receive.span, values.into_iter().map(Some).collect());
        Some(())
    }
}

/// Returns the buffer, and the elements of it, that contain a rank's contribution at the start.
fn contribution(plan: &Plan, at: Place) -> (Buffer, Range<usize>) {
    let plan = plan.operation();
    match plan {
        Plan::Bcast { root, len, .. } => (Buffer::Output, 0..if *root == at.rank() { *len } else { 0 }),
        Plan::Gather { root, blocks, in_place: true, .. } if *root == at.rank() => {
            (Buffer::Output, blocks.get(at.rank()))
        }
        Plan::Allgather { blocks, in_place: true, .. } => (Buffer::Output, blocks.get(at.rank())),
        Plan::Exchange { .. } => (Buffer::Input, 0..plan.input(at)),
        _ if plan.input(at) == 0 && !matches!(plan, Plan::Scatter { .. } | Plan::Gather { .. }) => {
            (Buffer::Output, 0..plan.output(at))
        }
        _ => (Buffer::Input, 0..plan.input(at)),
    }
}

/// The reductions of the contributions, by element.
struct Reductions {
    /// The reductions of all ranks.
    all: Vec<Value>,
    /// The reductions of the ranks below the rank whose output is checked; `None` for rank 0.
    before: Vec<Option<Value>>,
}

impl Reductions {
    fn new(plans: &[Plan]) -> Self {
        let len = match plans[0].operation() {
            Plan::Reduce { len, .. }
            | Plan::Allreduce { len, .. }
            | Plan::Scan { len, .. }
            | Plan::Exscan { len, .. } => *len,
            Plan::ReduceScatter { blocks, .. } => blocks.end(plans.len() as u32),
            _ => 0,
        };
        let size = plans.len() as u32;
        let all = (0..len).map(|index| by_tree((0..size).map(|rank| Value::of(rank, index)).collect()));
        Self { all: all.collect(), before: vec![None; len] }
    }

    /// Adds the contribution of a rank to `before`.
    fn add(&mut self, rank: u32) {
        for (index, value) in self.before.iter_mut().enumerate() {
            *value = Some(with(*value, rank, index));
        }
    }
}

/// Returns the reduction of the values of all ranks by the tree that all reductions have that do not commute. If the
/// number of ranks is `pairs` more than a power of two, the first `pairs` pairs of neighbours are combined first.
fn by_tree(mut values: Vec<Value>) -> Value {
    let pairs = values.len() - (1 << values.len().ilog2());
    let (paired, single) = values.split_at(2 * pairs);
    values = halves(paired).chain(single.iter().copied()).collect();
    while values.len() > 1 {
        values = halves(&values).collect();
    }
    values[0]
}

/// Combines each value that has an even index with the next value.
fn halves(values: &[Value]) -> impl Iterator<Item = Value> {
    values.chunks_exact(2).map(|pair| pair[0].before(pair[1]))
}

/// Returns the reduction of `before` and an element of a rank's contribution, or the element alone if `before` is
/// `None`.
fn with(before: Option<Value>, rank: u32, index: usize) -> Value {
    let own = Value::of(rank, index);
    before.map_or(own, |before| before.before(own))
}

/// Checks the output of a rank.
fn verify_result(number: u32, rank: &Rank, plans: &[Plan], reductions: &Reductions) -> Result<(), Violation> {
    let output = &rank.buffers.as_ref().expect("results are verified by values")[Buffer::Output as usize];
    let plan = plans[number as usize].operation();
    let same = match plan {
        _ if plan.commutes() => Same::Elements,
        Plan::Scan { .. } | Plan::Exscan { .. } => Same::Order,
        _ => Same::Tree,
    };
    let expect = |range: Range<usize>, value: &dyn Fn(usize) -> Value| {
        let is_wrong = |(index, element): &(usize, usize)| {
            !output[*element].is_some_and(|found| found.is(value(*index), same))
        };
        match range.enumerate().find(is_wrong) {
            Some((_, element)) => Err(Violation::Result(number, element)),
            None => Ok(()),
        }
    };
    let each = |blocks: &Blocks, index_in: &dyn Fn(u32) -> usize| {
        (0..plans.len() as u32)
            .try_for_each(|from| expect(blocks.get(from), &|index| Value::of(from, index_in(from) + index)))
    };
    match plan {
        Plan::Barrier(_) => Ok(()),
        Plan::Bcast { root, len, .. } => expect(0..*len, &|index| Value::of(*root, index)),
        Plan::Gather { root, .. } | Plan::Reduce { root, .. } if *root != number => Ok(()),
        Plan::Gather { blocks, .. } | Plan::Allgather { blocks, .. } => each(blocks, &|_| 0),
        Plan::Scatter { root, .. } => {
            let Plan::Scatter { blocks, .. } = &plans[*root as usize] else { return Ok(()) };
            let start = blocks.get(number).start;
            expect(0..output.len(), &|index| Value::of(*root, start + index))
        }
        Plan::Alltoall { into, .. } => each(into, &|from| match &plans[from as usize] {
            Plan::Alltoall { from: blocks, .. } => blocks.get(number).start,
            _ => 0,
        }),
        Plan::Reduce { len, .. } | Plan::Allreduce { len, .. } => {
            expect(0..*len, &|index| reductions.all[index])
        }
        Plan::ReduceScatter { blocks, .. } => {
            let block = blocks.get(number);
            expect(0..block.len(), &|index| reductions.all[block.start + index])
        }
        Plan::Scan { len, .. } => expect(0..*len, &|index| with(reductions.before[index], number, index)),
        Plan::Exscan { .. } if number == 0 => Ok(()),
        Plan::Exscan { len, .. } => {
            expect(0..*len, &|index| reductions.before[index].expect("there is a rank before"))
        }
        // The parts of an operation in stages have no common meaning. Its tests check the result.
        Plan::Stages(_) => Ok(()),
        Plan::TwoLevels(_) => unreachable!("its operation is not on two levels"),
        Plan::Exchange { receives, .. } => (0..receives.len()).try_for_each(|which| {
            let received = &receives[which];
            let start = sent_start(&plans[received.partner as usize], number, receives, which);
            expect(received.elements.clone(), &|index| Value::of(received.partner, start + index))
        }),
    }
}

/// Returns the index of the first element that the sender of an exchange sends in the message that rank `to` receives
/// by `receives[which]`.
fn sent_start(sender: &Plan, to: u32, receives: &[Transfer], which: usize) -> usize {
    let Plan::Exchange { sends, .. } = sender else { panic!("all ranks take part in one exchange") };
    let Transfer { partner, round, .. } = receives[which];
    let is_same = |transfer: &&Transfer| transfer.partner == partner && transfer.round == round;
    let before = receives[..which].iter().filter(is_same).filter(|transfer| !transfer.elements.is_empty());
    let sent = |transfer: &&Transfer| transfer.partner == to && transfer.round == round;
    let mut sent = sends.iter().filter(sent).filter(|transfer| !transfer.elements.is_empty());
    // A receive of no elements has no message.
    sent.nth(before.count()).map_or(0, |transfer| transfer.elements.start)
}

#[cfg(test)]
mod tests;
