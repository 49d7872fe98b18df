//! The loops that are timed, over any implementation that sends and receives tagged messages.

use std::time::{Duration, Instant};

use crate::benchmark::{Benchmark, Point};
use crate::measure::{End, EndError};

/// The tag of messages that are measured; in [`Benchmark::Depth`] the first of many.
const DATA: u64 = 0;
/// The tag of all else.
const CONTROL: u64 = 1 << 32;

/// Sends and receives messages between ranks 0 and 1. Those of one tag are received in the order they were
/// sent.
pub(crate) trait Messages {
    /// Which of the two this is.
    fn rank(&self) -> u32;

    /// What carries the bytes, as records name it.
    fn transport(&self) -> String;

    /// Sends a message, and returns when `data` may be reused.
    fn send(&mut self, tag: u64, data: &[u8]) -> Result<(), EndError>;

    /// Receives a message of exactly the length of `into`.
    fn recv(&mut self, tag: u64, into: &mut [u8]) -> Result<(), EndError>;

    /// Sends the same message `count` times, all in flight together.
    fn send_many(&mut self, tag: u64, data: &[u8], count: usize) -> Result<(), EndError>;

    /// Receives a message to each of the buffers, all posted together.
    fn recv_many(&mut self, tag: u64, into: &mut [Vec<u8>]) -> Result<(), EndError>;
}

/// One of two ranks that run the loops over messages.
#[derive(Debug)]
pub(crate) struct Loops<M> {
    messages: M,
    benchmark: Benchmark,
    depth: u64,
    out: Vec<u8>,
    into: Vec<Vec<u8>>,
}

impl<M> Loops<M> {
    /// The loops over `messages`.
    pub(crate) fn new(messages: M) -> Self {
        Self { messages, benchmark: Benchmark::Latency, depth: 0, out: Vec::new(), into: Vec::new() }
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
        let buffers = match benchmark {
            Benchmark::Latency | Benchmark::Depth => 1,
            Benchmark::Bandwidth | Benchmark::Rate => point.window(),
        };
        // Written, so that no page is missing when it is first sent.
        let buffer = || vec![1; point.bytes];
        self.benchmark = benchmark;
        self.depth = point.depth.unwrap_or(0) as u64;
        self.out = buffer();
        self.into = std::iter::repeat_with(buffer).take(buffers).collect();
        Ok(())
    }

    fn agree(&mut self, number: u64) -> Result<u64, EndError> {
        let mut bytes = number.to_le_bytes();
        if self.rank() == 0 {
            self.messages.send(CONTROL, &bytes)?;
            self.messages.recv(CONTROL, &mut [])?;
        } else {
            self.messages.recv(CONTROL, &mut bytes)?;
            self.messages.send(CONTROL, &[])?;
        }
        Ok(u64::from_le_bytes(bytes))
    }

    fn iterate(&mut self, iterations: u64) -> Result<Duration, EndError> {
        let Self { messages, out, into, depth, .. } = self;
        let tags = DATA..DATA + *depth;
        let mut aside = Duration::ZERO;
        let begin = Instant::now();
        for _ in 0..iterations {
            match (self.benchmark, messages.rank()) {
                (Benchmark::Latency, 0) => {
                    messages.send(DATA, out)?;
                    messages.recv(DATA, &mut into[0])?;
                }
                (Benchmark::Latency, _) => {
                    messages.recv(DATA, &mut into[0])?;
                    messages.send(DATA, out)?;
                }
                (Benchmark::Bandwidth | Benchmark::Rate, 0) => {
                    messages.send_many(DATA, out, into.len())?;
                    messages.recv(CONTROL, &mut [])?;
                }
                (Benchmark::Bandwidth | Benchmark::Rate, _) => {
                    messages.recv_many(DATA, into)?;
                    messages.send(CONTROL, &[])?;
                }
                (Benchmark::Depth, 0) => {
                    // Only the receives count. When the last message is there, so are those before it.
                    let filling = Instant::now();
                    messages.send(CONTROL, &[])?;
                    messages.recv(CONTROL, &mut [])?;
                    aside += filling.elapsed();
                    for tag in tags.clone().rev() {
                        messages.recv(tag, &mut into[0])?;
                    }
                }
                (Benchmark::Depth, _) => {
                    messages.recv(CONTROL, &mut [])?;
                    for tag in tags.clone() {
                        messages.send(tag, out)?;
                    }
                    messages.send(CONTROL, &[])?;
                }
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

    /// Two threads of one process.
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
        fn transport(&self) -> String {
            "threads".to_owned()
        }
        fn send(&mut self, tag: u64, data: &[u8]) -> Result<(), EndError> {
            Ok(self.to.send((tag, data.to_vec()))?)
        }
        fn recv(&mut self, tag: u64, into: &mut [u8]) -> Result<(), EndError> {
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
        fn send_many(&mut self, tag: u64, data: &[u8], count: usize) -> Result<(), EndError> {
            (0..count).try_for_each(|_| self.send(tag, data))
        }
        fn recv_many(&mut self, tag: u64, into: &mut [Vec<u8>]) -> Result<(), EndError> {
            into.iter_mut().try_for_each(|buffer| self.recv(tag, buffer))
        }
    }

    #[test]
    fn both_sides_agree_on_every_loop() {
        let (to_1, from_0) = channel();
        let (to_0, from_1) = channel();
        let end = |rank, to, from| Loops::new(Threads { rank, to, from, unexpected: VecDeque::new() });
        let mut ends = [end(0, to_1, from_1), end(1, to_0, from_0)];
        let run = |end: &mut Loops<Threads>| -> Vec<Option<Spread>> {
            let benchmarks = [Benchmark::Latency, Benchmark::Bandwidth, Benchmark::Rate, Benchmark::Depth];
            let points = benchmarks.into_iter().flat_map(|benchmark| {
                benchmark.points(&[0, 100], &[5]).into_iter().map(move |point| (benchmark, point))
            });
            points.map(|(benchmark, point)| measure(end, benchmark, point).unwrap()).collect()
        };
        let [leader, follower] = &mut ends;
        let figures = std::thread::scope(|scope| {
            let follower = scope.spawn(|| run(follower));
            let figures = run(leader);
            assert_eq!(follower.join().unwrap(), [None; 8]);
            figures
        });
        assert_eq!(figures.len(), 8);
        for spread in figures {
            let Spread { median, min, max } = spread.unwrap();
            assert!(0.0 <= min && min <= median && median <= max);
        }
        for Loops { messages, .. } in ends {
            assert!(messages.from.try_recv().is_err() && messages.unexpected.is_empty(), "nothing is left");
        }
    }
}
