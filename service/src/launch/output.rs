//! Forwarding what the ranks print, a line at a time.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread;

use super::wait::{Interest, wait, wait_writable};

/// Longer lines are cut into lines of about this many bytes, so that the memory for a rank's output is
/// bounded.
const LINE_BYTES_MAX: usize = 64 << 10;

/// How much of one rank's output is forwarded before the others have their turn.
const TURN_BYTES: usize = 64 << 10;

/// Up to this size a write to a pipe is not mixed with those of other processes, such as the front's messages
/// (pipe(7)).
const PIPE_BUF: usize = 4096;

/// A rank's stdout or stderr.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) rank: u32,
    pub(super) pipe: OwnedFd,
}

/// Starts to forward what the ranks print on stdout and stderr to our own, with a thread for each: whoever
/// reads one of them may be slow, which is to hold up neither the other nor the agent. The stream returned is
/// closed when all sources have ended.
pub(super) fn forward(stdouts: Vec<Source>, stderrs: Vec<Source>, prefix: bool) -> io::Result<UnixStream> {
    let (running, done) = UnixStream::pair()?;
    for (name, sources, own) in [
        ("stdout", stdouts, io::stdout().as_fd().try_clone_to_owned()?),
        ("stderr", stderrs, io::stderr().as_fd().try_clone_to_owned()?),
    ] {
        let running = running.try_clone()?;
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            let _running = running;
            forward_until_end(sources, prefix, Sink::new(File::from(own)))
        })?;
    }
    Ok(done)
}

fn forward_until_end<W: Write + AsFd>(
    sources: Vec<Source>,
    prefix: bool,
    mut sink: Sink<W>,
) -> io::Result<()> {
    let mut readers: Vec<Reader> = sources.into_iter().map(|source| Reader::new(source, prefix)).collect();
    let mut turn = vec![0; TURN_BYTES];
    // When nobody takes what we write, the ranks find their pipes closed, as they would without us between.
    while !readers.is_empty() && !sink.is_closed {
        let interests =
            (0..).zip(&readers).map(|(index, reader)| Interest::read(index, &reader.pipe)).collect();
        let mut ready = wait(interests, None)?.into_iter().peekable();
        let mut index = 0_usize..;
        readers.retain_mut(|reader| {
            let is_ready = ready.next_if_eq(&index.next().expect("endless")).is_some();
            !is_ready || reader.forward(&mut turn, &mut sink)
        });
    }
    Ok(())
}

/// A source that is being read.
struct Reader {
    pipe: File,
    label: Vec<u8>,
    /// The beginning of a line whose end has not been read.
    partial: Vec<u8>,
}

impl Reader {
    fn new(Source { rank, pipe }: Source, prefix: bool) -> Reader {
        let label = if prefix { format!("[{rank}] ").into_bytes() } else { Vec::new() };
        Reader { pipe: pipe.into(), label, partial: Vec::new() }
    }

    /// Forwards what one read gives; false at the end.
    fn forward<W: Write + AsFd>(&mut self, turn: &mut [u8], sink: &mut Sink<W>) -> bool {
        let count = match self.pipe.read(turn) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => return true,
            Err(_) => 0,
        };
        for piece in turn[..count].split_inclusive(|&byte| byte == b'\n') {
            if self.partial.is_empty() && piece.ends_with(b"\n") {
                sink.line(&self.label, piece);
                continue;
            }
            self.partial.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.partial.len() >= LINE_BYTES_MAX {
                sink.line(&self.label, &self.partial);
                self.partial.clear();
            }
        }
        if count == 0 && !self.partial.is_empty() {
            sink.line(&self.label, &self.partial);
        }
        sink.flush();
        count > 0
    }
}

/// The launcher's own stdout or stderr: whole lines, many to a write.
struct Sink<W> {
    out: W,
    chunk: Vec<u8>,
    /// The last line had no end. It gets one when another line follows, so that lines do not mix, and not
    /// otherwise.
    owes_newline: bool,
    /// Nobody takes our output any more.
    is_closed: bool,
}

impl<W: Write + AsFd> Sink<W> {
    fn new(out: W) -> Sink<W> {
        Sink { out, chunk: Vec::new(), owes_newline: false, is_closed: false }
    }

    fn line(&mut self, label: &[u8], line: &[u8]) {
        if !self.chunk.is_empty() && self.chunk.len() + 1 + label.len() + line.len() > PIPE_BUF {
            self.flush();
        }
        if self.owes_newline {
            self.chunk.push(b'\n');
        }
        self.chunk.extend_from_slice(label);
        self.chunk.extend_from_slice(line);
        self.owes_newline = !line.ends_with(b"\n");
    }

    fn flush(&mut self) {
        let mut written = 0;
        while written < self.chunk.len() && !self.is_closed {
            match self.out.write(&self.chunk[written..]) {
                Ok(count) => written += count,
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => {}
                    // Somebody has made the descriptor that we share with them nonblocking.
                    ErrorKind::WouldBlock => self.is_closed = wait_writable(self.out.as_fd()).is_err(),
                    _ => self.is_closed = true,
                },
            }
        }
        self.chunk.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes out when ranks print these bytes.
    fn forwarded(prefix: bool, ranks: Vec<Vec<u8>>) -> Vec<u8> {
        let mut sources = Vec::new();
        let mut writers = Vec::new();
        for (rank, bytes) in (0..).zip(ranks) {
            let (read, write) = rustix::pipe::pipe().unwrap();
            sources.push(Source { rank, pipe: read });
            writers.push(thread::Builder::new().spawn(move || File::from(write).write_all(&bytes)).unwrap());
        }
        let (read, write) = rustix::pipe::pipe().unwrap();
        let forwarder = thread::Builder::new()
            .spawn(move || forward_until_end(sources, prefix, Sink::new(File::from(write))))
            .unwrap();
        let mut output = Vec::new();
        File::from(read).read_to_end(&mut output).unwrap();
        forwarder.join().unwrap().unwrap();
        for writer in writers {
            writer.join().unwrap().unwrap();
        }
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

    #[test]
    fn lines_of_flooding_ranks_do_not_mix() {
        let line = |rank: usize, number: usize| format!("{rank} {number} {}\n", "x".repeat(number % 5000));
        let text = |rank| (0..2000).map(|number| line(rank, number)).collect::<String>();
        let output = forwarded(false, (0..4).map(|rank| text(rank).into_bytes()).collect());
        let output = String::from_utf8(output).unwrap();
        let mut next = [0; 4];
        for seen in output.split_inclusive('\n') {
            let rank: usize = seen[..1].parse().unwrap();
            assert_eq!(seen, line(rank, next[rank]));
            next[rank] += 1;
        }
        assert_eq!(next, [2000; 4]);
    }

    #[test]
    fn unfinished_last_lines_stay_apart() {
        let output = forwarded(false, vec![b"left".to_vec(), b"right".to_vec()]);
        assert!(matches!(&output[..], b"left\nright" | b"right\nleft"));
    }

    #[test]
    fn an_endless_line_is_cut() {
        let output = forwarded(false, vec![vec![b'x'; 10 * LINE_BYTES_MAX]]);
        let lines: Vec<_> = output.split(|&byte| byte == b'\n').collect();
        assert!(lines.iter().all(|line| line.len() < LINE_BYTES_MAX + TURN_BYTES));
        assert_eq!(lines.concat().len(), 10 * LINE_BYTES_MAX);
    }
}
