//! Forwarding of the ranks' output.
//!
//! Without a prefix the bytes of a rank are forwarded unaltered, and soon. If a rank is the only writer of the output,
//! its bytes are forwarded at once. Otherwise the beginning of a line is held for [`HOLD`], in which the line's end may
//! arrive. So the lines of different ranks mix only if they are long, or printed slowly. With a prefix only whole lines
//! are forwarded, with two exceptions: a line of [`LINE_BYTES_MAX`] bytes or more is forwarded in parts (see
//! [`Sink::open`]), and the last line of a rank's output may lack its end.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use super::wait::{Interest, wait, wait_writable};
use super::{AGENT_COMMAND, say};

/// The length from which a line is forwarded in parts, so that the memory for a rank's output is bounded.
const LINE_BYTES_MAX: usize = 64 << 10;

/// The largest number of bytes that one read takes from a rank's output.
const TURN_BYTES: usize = 64 << 10;

/// The longest write to a pipe that does not mix with writes of other processes, such as the coordinator's messages
/// (pipe(7)).
const PIPE_BUF: usize = 4096;

/// The time for which the beginning of a line is held back without a prefix. A program that prints a line with several
/// writes usually needs less time for them, and a person does not notice the delay.
const HOLD: Duration = Duration::from_millis(10);

/// With a prefix: the longest time for which the output of other ranks waits for the end of a line that was forwarded
/// in part. It must be limited, because the rank that prints the line may wait for a message from one of those ranks.
const OPEN_MAX: Duration = Duration::from_secs(1);

/// A rank's stdout or stderr.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) rank: u32,
    pub(super) pipe: OwnedFd,
}

/// Starts to forward the ranks' stdout and stderr to the stdout and stderr of this process. Stdout and stderr have a
/// thread each, because a slow reader of one must delay neither the other nor the agent. The returned stream is closed
/// when all sources have ended. Before that it carries a byte for each of the two that could not be written.
pub(super) fn forward(stdouts: Vec<Source>, stderrs: Vec<Source>, prefix: bool) -> io::Result<UnixStream> {
    let (running, done) = UnixStream::pair()?;
    // The launcher's own messages go to stderr too.
    for (name, sources, own, is_shared) in [
        ("stdout", stdouts, io::stdout().as_fd().try_clone_to_owned()?, false),
        ("stderr", stderrs, io::stderr().as_fd().try_clone_to_owned()?, true),
    ] {
        let running = running.try_clone()?;
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            let is_written =
                forward_until_end(sources, prefix, Sink { is_shared, ..Sink::new(File::from(own)) })?;
            if is_written { Ok(()) } else { (&running).write_all(b"!") }
        })?;
    }
    Ok(done)
}

/// Forwards all sources until they end, or until the output is closed. Returns false if output was lost because `sink`
/// could not be written. That the reader has closed the output is not such a loss.
fn forward_until_end<W: Write + AsFd>(
    sources: Vec<Source>,
    prefix: bool,
    mut sink: Sink<W>,
) -> io::Result<bool> {
    let mut readers: Vec<Reader> = sources.into_iter().map(|source| Reader::new(source, prefix)).collect();
    let mut turn = vec![0; TURN_BYTES];
    // If the reader of the output is gone, stop reading too. The ranks then find their pipes closed, as they would if
    // they wrote to that reader directly.
    while !readers.is_empty() && !sink.is_closed {
        // A line was forwarded in part, and other ranks have output that waits for its end. Read only the rank that
        // prints this line.
        let only = sink.open.filter(|open| open.contended.is_some());
        let interests = readers
            .iter()
            .filter(|reader| only.is_none_or(|open| open.rank == reader.rank))
            .map(|reader| Interest::read(reader.rank, &reader.pipe))
            .collect();
        let held = readers.iter().filter_map(|reader| reader.held).map(|since| since + HOLD).min();
        let deadline = only.and_then(|open| open.contended).map(|since| since + OPEN_MAX).or(held);
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let mut ready = wait(interests, left)?.into_iter().peekable();
        let now = Instant::now();
        if sink.open.is_some_and(|open| open.contended.is_some_and(|since| since + OPEN_MAX <= now)) {
            sink.open = None;
        }
        let is_alone = readers.len() == 1 && !sink.is_shared;
        readers.retain_mut(|reader| {
            if reader.held.is_some_and(|since| since + HOLD <= now) {
                reader.pass_part(&mut sink);
                sink.flush();
            }
            if ready.next_if_eq(&reader.rank).is_none() {
                return true;
            }
            if let Some(open) = sink.open.as_mut().filter(|open| open.rank != reader.rank) {
                open.contended.get_or_insert(now);
                return true;
            }
            reader.forward(&mut turn, &mut sink, is_alone, now)
        });
    }
    Ok(!sink.has_failed)
}

/// A source of output, with the part of a line that was read from it and not forwarded.
struct Reader {
    rank: u32,
    pipe: File,
    /// The prefix of each line, if lines have a prefix.
    label: Option<Vec<u8>>,
    /// The part of a line that has been read and not forwarded.
    partial: Vec<u8>,
    /// Without a prefix: the time since which `partial` is held back.
    held: Option<Instant>,
}

impl Reader {
    fn new(Source { rank, pipe }: Source, prefix: bool) -> Reader {
        let label = prefix.then(|| format!("[{rank}] ").into_bytes());
        Reader { rank, pipe: pipe.into(), label, partial: Vec::new(), held: None }
    }

    /// Reads once from the source, and forwards the bytes. Returns false if the source has ended.
    fn forward<W: Write + AsFd>(
        &mut self,
        turn: &mut [u8],
        sink: &mut Sink<W>,
        is_alone: bool,
        now: Instant,
    ) -> bool {
        let count = match self.pipe.read(turn) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => return true,
            Err(_) => 0,
        };
        for piece in turn[..count].split_inclusive(|&byte| byte == b'\n') {
            if self.partial.is_empty() && piece.ends_with(b"\n") {
                sink.put(self.rank, self.label.as_deref(), piece);
                continue;
            }
            self.partial.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.partial.len() >= LINE_BYTES_MAX {
                self.pass_part(sink);
            }
        }
        let is_over = count == 0;
        if is_over || (is_alone && self.label.is_none()) {
            self.pass_part(sink);
        }
        if self.partial.is_empty() {
            self.held = None;
        } else if self.label.is_none() {
            self.held.get_or_insert(now);
        }
        sink.flush();
        if is_over {
            sink.open.take_if(|open| open.rank == self.rank);
        }
        !is_over
    }

    /// Forwards the part of a line that was held back, if there is one.
    fn pass_part<W: Write + AsFd>(&mut self, sink: &mut Sink<W>) {
        if !self.partial.is_empty() {
            sink.put(self.rank, self.label.as_deref(), &self.partial);
        }
        self.partial.clear();
        self.held = None;
    }
}

/// The launcher's own stdout or stderr, with a buffer by which many lines are written together.
struct Sink<W> {
    out: W,
    /// True if other processes write to the same output.
    is_shared: bool,
    chunk: Vec<u8>,
    /// With a prefix: the rank whose line was forwarded in part, without its end. The output of the other ranks waits,
    /// for [`OPEN_MAX`] at most.
    open: Option<Open>,
    /// With a prefix: true if the latest output does not end with a newline. If a line of another rank follows, a
    /// newline is written before it.
    owes_newline: bool,
    /// True if the reader of the output is gone, or the output cannot be written.
    is_closed: bool,
    /// True if output was lost because it could not be written.
    has_failed: bool,
}

/// A line that was forwarded in part.
#[derive(Debug, Clone, Copy)]
struct Open {
    rank: u32,
    /// The time since which the output of another rank waits for the end of this line.
    contended: Option<Instant>,
}

impl<W: Write + AsFd> Sink<W> {
    fn new(out: W) -> Sink<W> {
        Sink {
            out,
            is_shared: false,
            chunk: Vec::new(),
            open: None,
            owes_newline: false,
            is_closed: false,
            has_failed: false,
        }
    }

    /// Adds a line, or a part of a line, to the buffer. Writes the buffered bytes first if together they would be
    /// longer than [`PIPE_BUF`].
    fn put(&mut self, rank: u32, label: Option<&[u8]>, line: &[u8]) {
        let length = 1 + label.map_or(0, <[u8]>::len) + line.len();
        if !self.chunk.is_empty() && self.chunk.len() + length > PIPE_BUF {
            self.flush();
        }
        if let Some(label) = label {
            let continues = self.open.is_some_and(|open| open.rank == rank);
            if !continues && self.owes_newline {
                self.chunk.push(b'\n');
            }
            if !continues {
                self.chunk.extend_from_slice(label);
            }
            self.owes_newline = !line.ends_with(b"\n");
            self.open = match self.open {
                _ if !self.owes_newline => None,
                Some(open) if continues => Some(open),
                _ => Some(Open { rank, contended: None }),
            };
        }
        self.chunk.extend_from_slice(line);
    }

    fn flush(&mut self) {
        let mut written = 0;
        while written < self.chunk.len() && !self.is_closed {
            match self.out.write(&self.chunk[written..]) {
                Ok(count) => written += count,
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => {}
                    // The descriptor is shared with other processes, one of which has made it nonblocking.
                    ErrorKind::WouldBlock => self.is_closed = wait_writable(self.out.as_fd()).is_err(),
                    // For example, `head` has read enough and closed the pipe.
                    ErrorKind::BrokenPipe => self.is_closed = true,
                    _ => {
                        (self.is_closed, self.has_failed) = (true, true);
                        let name = if self.is_shared { "stderr" } else { "stdout" };
                        let what =
                            format!("the ranks' output to {name} cannot be written and is lost: {error}");
                        say(AGENT_COMMAND, &what);
                    }
                },
            }
        }
        self.chunk.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Seek;

    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    /// Returns the output for ranks that print these bytes.
    fn forwarded(prefix: bool, ranks: Vec<Vec<u8>>) -> Vec<u8> {
        let mut sources = Vec::new();
        let mut writers = Vec::new();
        for (rank, bytes) in (0..).zip(ranks) {
            let (read, write) = rustix::pipe::pipe().unwrap();
            sources.push(Source { rank, pipe: read });
            writers.push(thread::Builder::new().spawn(move || File::from(write).write_all(&bytes)).unwrap());
        }
        let output = output_of(sources, prefix);
        for writer in writers {
            writer.join().unwrap().unwrap();
        }
        output
    }

    /// Returns the output for these sources.
    fn output_of(sources: Vec<Source>, prefix: bool) -> Vec<u8> {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let forwarder = thread::Builder::new()
            .spawn(move || forward_until_end(sources, prefix, Sink::new(File::from(write))))
            .unwrap();
        let mut output = Vec::new();
        File::from(read).read_to_end(&mut output).unwrap();
        forwarder.join().unwrap().unwrap();
        output
    }

    #[test]
    fn bytes_pass_unchanged_from_one_rank() {
        let text = b"one\n\ntwo\xff\n\nlast without end".to_vec();
        assert_eq!(forwarded(false, vec![text.clone()]), text);
    }

    #[test]
    fn a_prefix_begins_each_line() {
        assert_eq!(forwarded(true, vec![b"one\n\nlast".to_vec()]), b"[0] one\n[0] \n[0] last");
    }

    /// The sources are files, which can always be read. A thread that writes to a pipe may be kept from the processor
    /// for longer than [`HOLD`] in the middle of a line, and then its line may mix with others.
    #[test]
    fn lines_of_flooding_ranks_do_not_mix() {
        let line = |rank: u32, number: usize| format!("{rank} {number} {}\n", "x".repeat(number % 5000));
        let source = |rank| {
            let text: String = (0..2000).map(|number| line(rank, number)).collect();
            let mut file = File::from(memfd_create("output", MemfdFlags::CLOEXEC).unwrap());
            file.write_all(text.as_bytes()).unwrap();
            file.rewind().unwrap();
            Source { rank, pipe: file.into() }
        };
        let output = output_of((0..4).map(source).collect(), false);
        let output = String::from_utf8(output).unwrap();
        let mut next = [0; 4];
        for seen in output.split_inclusive('\n') {
            let rank: usize = seen[..1].parse().unwrap();
            assert_eq!(seen, line(rank as u32, next[rank]));
            next[rank] += 1;
        }
        assert_eq!(next, [2000; 4]);
    }

    #[test]
    fn binary_output_passes_unchanged() {
        let bytes: Vec<u8> = (0..10 * LINE_BYTES_MAX).map(|at| if at % 7 == 0 { 0 } else { 0x80 }).collect();
        assert!(forwarded(false, vec![bytes.clone()]) == bytes);
    }

    #[test]
    fn nothing_is_added_between_the_output_of_two_ranks() {
        let output = forwarded(false, vec![b"left".to_vec(), b"right".to_vec()]);
        assert!(matches!(&output[..], b"leftright" | b"rightleft"));
    }

    #[test]
    fn with_a_prefix_unfinished_last_lines_stay_apart() {
        let output = forwarded(true, vec![b"left".to_vec(), b"right".to_vec()]);
        assert!(matches!(&output[..], b"[0] left\n[1] right" | b"[1] right\n[0] left"));
    }

    #[test]
    fn with_a_prefix_a_long_line_stays_one_line() {
        let long = |byte| {
            let mut line = vec![byte; 10 * LINE_BYTES_MAX];
            line.push(b'\n');
            line
        };
        let output = forwarded(true, vec![long(b'x'), long(b'y'), b"short\n".repeat(1000)]);
        let lines: Vec<_> = output.split_inclusive(|&byte| byte == b'\n').collect();
        assert_eq!(lines.len(), 1002);
        for (label, byte) in [("[0] ", b'x'), ("[1] ", b'y')] {
            let line = lines.iter().find(|line| line.starts_with(label.as_bytes())).unwrap();
            assert!(line[4..] == long(byte));
        }
        assert_eq!(lines.iter().filter(|line| **line == b"[2] short\n").count(), 1000);
    }

    /// Starts a thread that forwards one pipe of each rank to one output pipe. Returns the ends of the pipes to which
    /// the ranks write, and the end from which the output can be read.
    fn forwarder(prefix: bool, ranks: u32) -> (Vec<File>, File) {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let mut writers = Vec::new();
        let sources = (0..ranks).map(|rank| {
            let (pipe, write) = rustix::pipe::pipe().unwrap();
            writers.push(write.into());
            Source { rank, pipe }
        });
        let sources = sources.collect();
        let sink = Sink::new(File::from(write));
        thread::Builder::new().spawn(move || forward_until_end(sources, prefix, sink)).unwrap();
        (writers, read.into())
    }

    #[test]
    fn a_question_without_a_newline_is_seen_while_its_rank_waits() {
        for ranks in [1, 3] {
            let (mut writers, mut output) = forwarder(false, ranks);
            writers[0].write_all(b"name? ").unwrap();
            let mut seen = [0; 6];
            output.read_exact(&mut seen).unwrap();
            assert_eq!(&seen, b"name? ");
        }
    }

    #[test]
    fn a_rank_that_ends_no_line_does_not_hold_up_the_others_for_ever() {
        let (mut writers, mut output) = forwarder(true, 2);
        let long = vec![b'x'; LINE_BYTES_MAX];
        let first = &mut writers[0];
        thread::scope(|scope| {
            let writer = thread::Builder::new().spawn_scoped(scope, || first.write_all(&long)).unwrap();
            let mut seen = vec![0; 4 + LINE_BYTES_MAX];
            output.read_exact(&mut seen).unwrap();
            assert!(seen.starts_with(b"[0] xxx"));
            writer.join().unwrap().unwrap();
        });
        writers[1].write_all(b"help\n").unwrap();
        let mut seen = [0; 10];
        output.read_exact(&mut seen).unwrap();
        assert_eq!(&seen, b"\n[1] help\n");
    }

    #[test]
    fn ranks_wait_while_the_output_is_not_taken() {
        let (mut writers, output) = forwarder(false, 1);
        let room = 4 * LINE_BYTES_MAX;
        rustix::io::ioctl_fionbio(&writers[0], true).unwrap();
        let mut sent = 0;
        let mut refused = 0;
        // The two pipes hold 64 KiB each, and the forwarder's buffer holds as much.
        while refused < 100 && sent <= 2 * room {
            match writers[0].write(&[b'x'; 1000]) {
                Ok(count) => (sent, refused) = (sent + count, 0),
                Err(_) => {
                    refused += 1;
                    thread::yield_now();
                }
            }
        }
        assert!(sent <= room, "{sent}");
        writers.clear();
        let mut seen = Vec::new();
        (&output).read_to_end(&mut seen).unwrap();
        assert_eq!(seen.len(), sent);
    }
}
