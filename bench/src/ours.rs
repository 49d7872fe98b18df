//! Messages through the public crate.

use std::mem::take;

use samite::reduction::Sum;
use samite::{Comm, Rank, Request, Window, WindowOp, World};

use crate::benchmark::Benchmark;
use crate::loops::{DATA, Messages, STARTED, Side};
use crate::measure::EndError;

/// A rank of a job.
#[derive(Debug)]
pub(crate) struct Samite {
    world: World,
    /// The communicator of collective calls, with their algorithms.
    comm: Comm,
    /// The transport to the next rank, read while that rank is connected.
    transport: String,
    exposed: Option<Exposed>,
}

/// The memory for one-sided operations.
#[derive(Debug)]
struct Exposed {
    window: Window<u8>,
    numbers: Window<u64>,
    /// The buffers of the operations in flight.
    buffers: Vec<Vec<u8>>,
}

impl Samite {
    /// Returns this rank's end, after the rank has exchanged messages with its neighbours.
    ///
    /// # Errors
    /// The neighbours are unreachable.
    pub(crate) fn new(world: World) -> Result<Self, EndError> {
        let (rank, size) = (world.comm().rank(), world.comm().size());
        let (next, previous) = ((rank.0 + 1) % size, (rank.0 + size - 1) % size);
        // The connection to the next rank exists when a message from it has arrived.
        for (to, from) in [(next, previous), (previous, next)] {
            world.comm().sendrecv(&[0_u8; 0], Rank(to), 0, &mut [0_u8; 0], Rank(from), 0)?;
        }
        let transport = world.comm().transport(Rank(next)).unwrap_or_default();
        let comm = world.comm().clone();
        Ok(Self { world, comm, transport, exposed: None })
    }

    /// Selects the algorithm of collective calls: see [`Comm::with_coll_algorithms`].
    ///
    /// # Errors
    /// There is no such algorithm.
    pub(crate) fn select(&mut self, selection: &str) -> Result<(), EndError> {
        self.comm = self.world.comm().with_coll_algorithms(selection)?;
        Ok(())
    }
}

impl Messages for Samite {
    fn rank(&self) -> u32 {
        self.world.comm().rank().0
    }

    fn size(&self) -> u32 {
        self.world.comm().size()
    }

    fn transport(&self) -> String {
        self.transport.clone()
    }

    #[inline]
    fn send(&mut self, to: u32, tag: u64, data: &mut Vec<u8>) -> Result<(), EndError> {
        Ok(self.world.comm().send(data.as_slice(), Rank(to), tag)?)
    }

    #[inline]
    fn recv(&mut self, from: u32, tag: u64, into: &mut Vec<u8>) -> Result<(), EndError> {
        self.world.comm().recv(into.as_mut_slice(), Rank(from), tag)?;
        Ok(())
    }

    fn transfer(
        &mut self,
        side: Side,
        is_first: bool,
        other: u32,
        buffer: &mut Vec<u8>,
    ) -> Result<(), EndError> {
        let (comm, other) = (self.world.comm(), Rank(other));
        if !is_first {
            comm.recv(&mut [0_u8; 0], other, STARTED)?;
        }
        comm.scope(|scope| {
            match side {
                Side::Send => scope.isend(buffer.as_slice(), other, DATA).map(drop),
                Side::Receive => scope.irecv(buffer.as_mut_slice(), other, DATA).map(drop),
            }?;
            if is_first { comm.send(&[0_u8; 0], other, STARTED) } else { Ok(()) }
        })?;
        Ok(())
    }

    /// Sends the first of the buffers again and again, as the loops over MPI do.
    fn send_many(&mut self, to: u32, tag: u64, data: &mut [Vec<u8>]) -> Result<(), EndError> {
        let (count, data) = (data.len(), data.first().map_or(&[][..], Vec::as_slice));
        Ok(self
            .world
            .comm()
            .scope(|scope| (0..count).try_for_each(|_| scope.isend(data, Rank(to), tag).map(drop)))?)
    }

    fn recv_many(&mut self, from: u32, tag: u64, into: &mut [Vec<u8>]) -> Result<(), EndError> {
        Ok(self.world.comm().scope(|scope| {
            into.iter_mut().try_for_each(|buffer| scope.irecv(buffer, Rank(from), tag).map(drop))
        })?)
    }

    fn exchange(&mut self, tag: u64, data: &mut Vec<u8>, into: &mut [Vec<u8>]) -> Result<(), EndError> {
        let (rank, size) = (self.rank(), self.size());
        let (reach, data) = (into.len() as u32, data.as_slice());
        Ok(self.world.comm().scope(|scope| {
            for (distance, buffer) in (1..).zip(into) {
                scope.irecv(buffer, Rank((rank + size - distance) % size), tag)?;
            }
            (1..=reach)
                .try_for_each(|distance| scope.isend(data, Rank((rank + distance) % size), tag).map(drop))
        })?)
    }

    fn collective(
        &mut self,
        benchmark: Benchmark,
        root: u32,
        out: &mut [f64],
        into: &mut [f64],
    ) -> Result<(), EndError> {
        let (comm, root) = (&self.comm, Rank(root));
        Ok(match benchmark {
            Benchmark::Barrier => comm.barrier(),
            Benchmark::Bcast => comm.bcast(out, root),
            Benchmark::Reduce => comm.reduce(out, into, Sum, root),
            Benchmark::Allreduce => comm.allreduce(out, into, Sum),
            Benchmark::Allgather => comm.allgather(out, into),
            Benchmark::Alltoall => comm.alltoall(out, into),
            _ => return Err("it is no collective operation".into()),
        }?)
    }

    fn expose(&mut self, bytes: usize, window: usize) -> Result<(), EndError> {
        let comm = self.world.comm();
        // All ranks have left the earlier windows when they make new ones, so freeing these does not wait.
        self.exposed = None;
        self.exposed = Some(Exposed {
            window: comm.allocate_window(bytes * window)?,
            numbers: comm.allocate_window(1)?,
            buffers: vec![vec![1; bytes]; window],
        });
        Ok(())
    }

    fn one_sided(&mut self, benchmark: Benchmark, iterations: u64) -> Result<(), EndError> {
        let Some(Exposed { window, numbers, buffers }) = &mut self.exposed else {
            return Err("no memory is exposed".into());
        };
        let target = Rank(1);
        let (bytes, numbers) = (window.lock_all()?, numbers.lock_all()?);
        for _ in 0..iterations {
            match benchmark {
                Benchmark::Put => {
                    bytes.put(target, 0, &buffers[0])?;
                    bytes.flush(target)?;
                }
                Benchmark::Get => bytes.get(target, 0, &mut buffers[0])?,
                Benchmark::FetchAdd => drop(numbers.fetch(target, 0, 1, WindowOp::Sum)?),
                Benchmark::CompareSwap => drop(numbers.compare_swap(target, 0, 0, 1)?),
                Benchmark::PutBandwidth => {
                    for (number, buffer) in buffers.iter().enumerate() {
                        bytes.put(target, number * buffer.len(), buffer)?;
                    }
                    bytes.flush(target)?;
                }
                _ => {
                    let len = buffers[0].len();
                    let gets = take(buffers).into_iter().enumerate();
                    let gets = gets.map(|(number, buffer)| bytes.iget(target, number * len, buffer));
                    let gets: Vec<_> = gets.collect::<Result<_, _>>()?;
                    *buffers = gets
                        .into_iter()
                        .map(|get| Ok(get.wait()?.buffer))
                        .collect::<Result<_, EndError>>()?;
                }
            }
        }
        bytes.close()?;
        Ok(numbers.close()?)
    }
}

/// A rank that gives its buffers to the operations: `isend` and `irecv` of a `Vec`. The transport can read and write
/// such buffers itself.
#[derive(Debug)]
pub(crate) struct Owned {
    samite: Samite,
    /// The operations under way; kept because the memory of the list would otherwise be allocated for each window.
    requests: Vec<Request<Vec<u8>>>,
}

impl Owned {
    /// Returns the rank `samite` with owned buffers.
    pub(crate) fn new(samite: Samite) -> Self {
        Self { samite, requests: Vec::new() }
    }

    /// Waits for the operations of the buffers, in their order, and puts the buffers back.
    fn wait(&mut self, buffers: &mut [Vec<u8>]) -> Result<(), EndError> {
        for (request, buffer) in self.requests.drain(..).zip(buffers) {
            *buffer = request.wait()?.buffer;
        }
        Ok(())
    }
}

impl Messages for Owned {
    fn rank(&self) -> u32 {
        self.samite.rank()
    }

    fn size(&self) -> u32 {
        self.samite.size()
    }

    fn transport(&self) -> String {
        self.samite.transport()
    }

    #[inline]
    fn send(&mut self, to: u32, tag: u64, data: &mut Vec<u8>) -> Result<(), EndError> {
        *data = self.samite.world.comm().isend(take(data), Rank(to), tag)?.wait()?.buffer;
        Ok(())
    }

    #[inline]
    fn recv(&mut self, from: u32, tag: u64, into: &mut Vec<u8>) -> Result<(), EndError> {
        *into = self.samite.world.comm().irecv(take(into), Rank(from), tag)?.wait()?.buffer;
        Ok(())
    }

    fn transfer(
        &mut self,
        side: Side,
        is_first: bool,
        other: u32,
        buffer: &mut Vec<u8>,
    ) -> Result<(), EndError> {
        let (comm, other) = (self.samite.world.comm(), Rank(other));
        if !is_first {
            comm.recv(&mut [0_u8; 0], other, STARTED)?;
        }
        let request = match side {
            Side::Send => comm.isend(take(buffer), other, DATA),
            Side::Receive => comm.irecv(take(buffer), other, DATA),
        }?;
        if is_first {
            comm.send(&[0_u8; 0], other, STARTED)?;
        }
        *buffer = request.wait()?.buffer;
        Ok(())
    }

    fn send_many(&mut self, to: u32, tag: u64, data: &mut [Vec<u8>]) -> Result<(), EndError> {
        for data in &mut *data {
            self.requests.push(self.samite.world.comm().isend(take(data), Rank(to), tag)?);
        }
        self.wait(data)
    }

    fn recv_many(&mut self, from: u32, tag: u64, into: &mut [Vec<u8>]) -> Result<(), EndError> {
        for into in &mut *into {
            self.requests.push(self.samite.world.comm().irecv(take(into), Rank(from), tag)?);
        }
        self.wait(into)
    }

    fn exchange(&mut self, _: u64, _: &mut Vec<u8>, _: &mut [Vec<u8>]) -> Result<(), EndError> {
        Err("exchanges are measured with borrowed buffers: one buffer is sent to several ranks".into())
    }

    fn expose(&mut self, bytes: usize, window: usize) -> Result<(), EndError> {
        self.samite.expose(bytes, window)
    }

    fn one_sided(&mut self, benchmark: Benchmark, iterations: u64) -> Result<(), EndError> {
        let Some(Exposed { window, buffers, .. }) = &mut self.samite.exposed else {
            return Err("no memory is exposed".into());
        };
        if benchmark != Benchmark::PutBandwidth {
            return Err(format!("{} is measured with borrowed buffers", benchmark.name()).into());
        }
        let (target, bytes) = (Rank(1), window.lock_all()?);
        for _ in 0..iterations {
            for (number, buffer) in buffers.iter_mut().enumerate() {
                let at = number * buffer.len();
                self.requests.push(bytes.iput(target, at, take(buffer))?);
            }
            bytes.flush(target)?;
            for (request, buffer) in self.requests.drain(..).zip(&mut *buffers) {
                *buffer = request.wait()?.buffer;
            }
        }
        Ok(bytes.close()?)
    }
}
