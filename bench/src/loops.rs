//! The timed loops, over any implementation of tagged messages.
//!
//! `../peers/peer.c` has the same loops over MPI. Change both together.

use std::time::{Duration, Instant};

use crate::benchmark::{Benchmark, Point};
use crate::measure::{End, EndError};

/// The tag of measured messages. In [`Benchmark::Depth`], which uses many tags, the first of them.
pub(crate) const DATA: u64 = 0;
/// The tag of all other messages.
const CONTROL: u64 = 1 << 32;

/// The tag of the messages that tell the other rank that an operation has started.
pub(crate) const STARTED: u64 = CONTROL + 1;

/// A side of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Send,
    Receive,
}

/// Tagged messages between the ranks of a job. A rank receives the messages of another rank with one tag in the order
/// in which they were sent.
pub(crate) trait Messages {
    /// Returns this rank's number.
    fn rank(&self) -> u32;

    /// Returns the number of ranks.
    fn size(&self) -> u32;

    /// Returns the name of the transport in records.
    fn transport(&self) -> String;

    /// Sends a message, whose bytes are in `data` again when the call returns.
    fn send(&mut self, to: u32, tag: u64, data: &mut Vec<u8>) -> Result<(), EndError>;

    /// Receives a message whose length is exactly that of `into`.
    fn recv(&mut self, from: u32, tag: u64, into: &mut Vec<u8>) -> Result<(), EndError>;

    /// Sends or receives a message, as `side` says, by a nonblocking operation. If `is_first` is true, the operation
    /// starts first, and then a message without bytes is sent with the tag [`STARTED`]. If not, that message is
    /// received, and then the operation starts.
    fn transfer(
        &mut self,
        side: Side,
        is_first: bool,
        other: u32,
        buffer: &mut Vec<u8>,
    ) -> Result<(), EndError>;

    /// Sends a message for each of the equal buffers, all in flight together.
    fn send_many(&mut self, to: u32, tag: u64, data: &mut [Vec<u8>]) -> Result<(), EndError>;

    /// Receives a message into each of the buffers, all posted together.
    fn recv_many(&mut self, from: u32, tag: u64, into: &mut [Vec<u8>]) -> Result<(), EndError>;

    /// Sends to the next `into.len()` ranks around the ring, and receives from as many previous ranks. All receives are
    /// posted before the first send, and all operations are under way together.
    fn exchange(&mut self, tag: u64, data: &mut Vec<u8>, into: &mut [Vec<u8>]) -> Result<(), EndError>;

    /// Makes the collective call of a benchmark, with all numbers of the slices.
    fn collective(
        &mut self,
        benchmark: Benchmark,
        root: u32,
        out: &mut [f64],
        into: &mut [f64],
    ) -> Result<(), EndError> {
        let _ = (root, out, into);
        Err(format!("it has no {}", benchmark.name()).into())
    }

    /// Makes memory of this rank for one-sided operations: `window` parts of `bytes` bytes.
    fn expose(&mut self, bytes: usize, window: usize) -> Result<(), EndError> {
        let _ = (bytes, window);
        Err("it has no one-sided operations".into())
    }

    /// Carries out the operations of a benchmark on the memory of rank 1, `iterations` times. Each time, waits until
    /// they are complete there.
    fn one_sided(&mut self, benchmark: Benchmark, iterations: u64) -> Result<(), EndError> {
        let _ = iterations;
        Err(format!("it has no {}", benchmark.name()).into())
    }
}

/// One of the ranks that run the loops over messages.
#[derive(Debug)]
pub(crate) struct Loops<M> {
    messages: M,
    benchmark: Benchmark,
    depth: u64,
    /// The buffers of the messages in flight.
    out: Vec<Vec<u8>>,
    into: Vec<Vec<u8>>,
    /// The numbers of collective operations.
    numbers: [Vec<f64>; 2],
    /// The root of the next collective operation.
    root: u32,
}

impl<M> Loops<M> {
    /// Returns the loops over `messages`.
    pub(crate) fn new(messages: M) -> Self {
        let (out, into, numbers) = (Vec::new(), Vec::new(), [Vec::new(), Vec::new()]);
        Self { messages, benchmark: Benchmark::Latency, depth: 0, out, into, numbers, root: 0 }
    }

    /// Returns the implementation under the loops.
    pub(crate) fn messages_mut(&mut self) -> &mut M {
        &mut self.messages
    }

    /// Returns the implementation under the loops, and ends the loops.
    pub(crate) fn into_messages(self) -> M {
        self.messages
    }
}

impl<M: Messages> End for Loops<M> {
    fn rank(&self) -> u32 {
        self.messages.rank()
    }

    fn transport(&self) -> String {
        self.messages.transport()
    }

    fn prepare(&mut self, benchmark: Benchmark, point: Point) -> Result<(), EndError> {
        let size = self.messages.size() as usize;
        let blocks = match benchmark {
            Benchmark::Allgather => [1, size],
            Benchmark::Alltoall => [size, size],
            _ => [1, 1],
        };
        if benchmark.is_collective() {
            self.numbers = blocks.map(|blocks| vec![1.0; blocks * (point.bytes / size_of::<f64>())]);
        }
        let (window, buffers) = match benchmark {
            Benchmark::Latency | Benchmark::SenderFirst | Benchmark::ReceiverFirst => (1, 1),
            Benchmark::Depth | Benchmark::Ring => (1, 1),
            Benchmark::Bandwidth | Benchmark::Rate => (point.window(), point.window()),
            Benchmark::Pairs => (1, size - 1),
            _ if benchmark.is_one_sided() => {
                self.messages.expose(point.bytes, point.window())?;
                (0, 0)
            }
            _ if benchmark.is_collective() => (0, 0),
            _ => return Err("it has no loop".into()),
        };
        // The buffer is written, so that the first send causes no page fault.
        let buffer = || vec![1; point.bytes];
        self.benchmark = benchmark;
        self.depth = point.depth.unwrap_or(0) as u64;
        let [out, into] = [window, buffers].map(|count| std::iter::repeat_with(buffer).take(count).collect());
        (self.out, self.into) = (out, into);
        Ok(())
    }

    fn agree(&mut self, number: u64) -> Result<u64, EndError> {
        let mut bytes = number.to_le_bytes().to_vec();
        let messages = &mut self.messages;
        if messages.rank() == 0 {
            let others = 1..messages.size();
            others.clone().try_for_each(|to| messages.send(to, CONTROL, &mut bytes))?;
            others.clone().try_for_each(|from| messages.recv(from, CONTROL, &mut Vec::new()))?;
        } else {
            messages.recv(0, CONTROL, &mut bytes)?;
            messages.send(0, CONTROL, &mut Vec::new())?;
        }
        Ok(u64::from_le_bytes(bytes.try_into().map_err(|_| "it is no number")?))
    }

    fn iterate(&mut self, iterations: u64) -> Result<Duration, EndError> {
        let Self { messages, out, into, depth, numbers: [numbers, sums], root, .. } = self;
        // An empty vector needs no memory.
        let mut none = Vec::new();
        let other = 1 - messages.rank().min(1);
        let tags = DATA..DATA + *depth;
        let mut aside = Duration::ZERO;
        let begin = Instant::now();
        if self.benchmark.is_one_sided() {
            // Rank 1 is inside the library until all operations have ended.
            if messages.rank() != 0 {
                messages.recv(other, CONTROL, &mut none)?;
                return Ok(begin.elapsed());
            }
            messages.one_sided(self.benchmark, iterations)?;
            let time = begin.elapsed();
            messages.send(other, CONTROL, &mut none)?;
            return Ok(time);
        }
        for _ in 0..iterations {
            match (self.benchmark, messages.rank()) {
                (Benchmark::Latency, 0) => {
                    messages.send(other, DATA, &mut out[0])?;
                    messages.recv(other, DATA, &mut into[0])?;
                }
                (Benchmark::Latency, _) => {
                    messages.recv(other, DATA, &mut into[0])?;
                    messages.send(other, DATA, &mut out[0])?;
                }
                (Benchmark::SenderFirst | Benchmark::ReceiverFirst, rank) => {
                    let sends_first = self.benchmark == Benchmark::SenderFirst;
                    let mut sides = [(Side::Send, &mut out[0]), (Side::Receive, &mut into[0])];
                    if rank > 0 {
                        sides.reverse();
                    }
                    for (side, buffer) in sides {
                        messages.transfer(side, sends_first == (side == Side::Send), other, buffer)?;
                    }
                }
                (Benchmark::Bandwidth | Benchmark::Rate, 0) => {
                    messages.send_many(other, DATA, out)?;
                    messages.recv(other, CONTROL, &mut none)?;
                }
                (Benchmark::Bandwidth | Benchmark::Rate, _) => {
                    messages.recv_many(other, DATA, into)?;
                    messages.send(other, CONTROL, &mut none)?;
                }
                (Benchmark::Depth, 0) => {
                    // Only the time of the receives counts. So first wait for the last message: after it has arrived,
                    // all earlier messages have arrived too.
                    let filling = Instant::now();
                    messages.send(other, CONTROL, &mut none)?;
                    messages.recv(other, CONTROL, &mut none)?;
                    aside += filling.elapsed();
                    for tag in tags.clone().rev() {
                        messages.recv(other, tag, &mut into[0])?;
                    }
                }
                (Benchmark::Depth, _) => {
                    messages.recv(other, CONTROL, &mut none)?;
                    for tag in tags.clone() {
                        messages.send(other, tag, &mut out[0])?;
                    }
                    messages.send(other, CONTROL, &mut none)?;
                }
                (Benchmark::Ring | Benchmark::Pairs, _) => {
                    messages.exchange(DATA, &mut out[0], into)?;
                }
                (benchmark, _) if benchmark.is_collective() => {
                    // The root changes, so that no rank runs ahead of the others.
                    *root = (*root + 1) % messages.size();
                    messages.collective(benchmark, *root, numbers, sums)?;
                }
                (_, _) => return Err("it has no loop".into()),
            }
        }
        Ok(begin.elapsed() - aside)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;
    use crate::measure::measure;
    use crate::spread::Spread;

    /// One of two ranks, which are threads of one process.
    struct Threads {
        rank: u32,
        to: Sender<(u64, Vec<u8>)>,
        from: Receiver<(u64, Vec<u8>)>,
        unexpected: VecDeque<(u64, Vec<u8>)>,
    }

    impl Messages for Threads {
        fn rank(&self) -> u32 {
            self.rank
        }
        fn size(&self) -> u32 {
            2
        }
        fn transport(&self) -> String {
            "threads".to_owned()
        }
        fn send(&mut self, _: u32, tag: u64, data: &mut Vec<u8>) -> Result<(), EndError> {
            Ok(self.to.send((tag, data.clone()))?)
        }
        fn recv(&mut self, _: u32, tag: u64, into: &mut Vec<u8>) -> Result<(), EndError> {
            let data = loop {
                if let Some(at) = self.unexpected.iter().position(|message| message.0 == tag) {
                    break self.unexpected.remove(at).ok_or("it is there")?.1;
                }
                self.unexpected.push_back(self.from.recv()?);
            };
            assert_eq!(data.len(), into.len());
            into.copy_from_slice(&data);
            Ok(())
        }
        fn transfer(
            &mut self,
            side: Side,
            is_first: bool,
            other: u32,
            buffer: &mut Vec<u8>,
        ) -> Result<(), EndError> {
            let mut none = Vec::new();
            match (side, is_first) {
                (Side::Send, true) => {
                    self.send(other, DATA, buffer)?;
                    self.send(other, STARTED, &mut none)
                }
                (Side::Receive, true) => {
                    self.send(other, STARTED, &mut none)?;
                    self.recv(other, DATA, buffer)
                }
                (Side::Send, false) => {
                    self.recv(other, STARTED, &mut none)?;
                    self.send(other, DATA, buffer)
                }
                (Side::Receive, false) => {
                    self.recv(other, STARTED, &mut none)?;
                    self.recv(other, DATA, buffer)
                }
            }
        }
        fn send_many(&mut self, to: u32, tag: u64, data: &mut [Vec<u8>]) -> Result<(), EndError> {
            data.iter_mut().try_for_each(|data| self.send(to, tag, data))
        }
        fn recv_many(&mut self, from: u32, tag: u64, into: &mut [Vec<u8>]) -> Result<(), EndError> {
            into.iter_mut().try_for_each(|buffer| self.recv(from, tag, buffer))
        }
        fn exchange(&mut self, tag: u64, data: &mut Vec<u8>, into: &mut [Vec<u8>]) -> Result<(), EndError> {
            let other = 1 - self.rank;
            self.send(other, tag, data)?;
            self.recv_many(other, tag, into)
        }
    }

    #[test]
    fn both_sides_agree_on_every_loop() {
        let (to_1, from_0) = channel();
        let (to_0, from_1) = channel();
        let end = |rank, to, from| Loops::new(Threads { rank, to, from, unexpected: VecDeque::new() });
        let mut ends = [end(0, to_1, from_1), end(1, to_0, from_0)];
        let run = |end: &mut Loops<Threads>| -> Vec<Option<Spread>> {
            use Benchmark::{Bandwidth, Depth, Latency, Pairs, Rate, ReceiverFirst, Ring, SenderFirst};
            let benchmarks = [Latency, SenderFirst, ReceiverFirst, Bandwidth, Rate, Depth, Ring, Pairs];
            let points = benchmarks.into_iter().flat_map(|benchmark| {
                benchmark.points(&[2], &[0, 100], &[5]).into_iter().map(move |point| (benchmark, point))
            });
            points.map(|(benchmark, point)| measure(end, benchmark, point).unwrap()).collect()
        };
        let [leader, follower] = &mut ends;
        let figures = std::thread::scope(|scope| {
            let follower = scope.spawn(|| run(follower));
            let figures = run(leader);
            assert_eq!(follower.join().unwrap(), [None; 16]);
            figures
        });
        assert_eq!(figures.len(), 16);
        for spread in figures {
            let Spread { median, min, max } = spread.unwrap();
            assert!(0.0 <= min && min <= median && median <= max);
        }
        for Loops { messages, .. } in ends {
            assert!(messages.from.try_recv().is_err() && messages.unexpected.is_empty(), "nothing is left");
        }
    }
}
