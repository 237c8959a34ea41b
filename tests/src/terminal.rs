//! A terminal with a program in it: what is on its screen, keys that are pressed, and how the program leaves it.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, SlavePty, native_pty_system};
use tokio::sync::watch;

use crate::programs::signal;
use crate::until::PATIENCE;

/// How many lines above the screen are remembered.
const SCROLLBACK: usize = 1000;

/// What a program asks that wants to know where the cursor is.
const WHERE_IS_THE_CURSOR: &[u8] = b"\x1b[6n";

/// A terminal's emulator, with its clipboard.
type Emulator = vt100::Parser<Clipboard>;

/// What programs put on the clipboard of the terminal (OSC 52), as they encode it.
#[derive(Debug, Default)]
struct Clipboard(Vec<u8>);

impl vt100::Callbacks for Clipboard {
    fn copy_to_clipboard(&mut self, _: &mut vt100::Screen, _: &[u8], encoded: &[u8]) {
        self.0 = encoded.to_vec();
    }
}

/// A terminal in which one program runs.
pub struct Terminal {
    master: Box<dyn MasterPty + Send>,
    /// Held, so that the terminal outlives the program and can be asked how it was left.
    _slave: Box<dyn SlavePty + Send>,
    keys: Arc<Mutex<Box<dyn Write + Send>>>,
    child: Option<Box<dyn Child + Send + Sync>>,
    process: u32,
    parser: Arc<Mutex<Emulator>>,
    drawn: watch::Receiver<u64>,
    modes: String,
}

/// How long the last words of a program that has ended may be on their way.
const LAST_WORDS: Duration = Duration::from_secs(10);

impl Terminal {
    /// Runs `program` in a terminal of so many rows and columns.
    pub fn run(program: &Path, args: &[&str], env: &[(&str, &str)], rows: u16, columns: u16) -> Self {
        let size = PtySize { rows, cols: columns, ..PtySize::default() };
        let pair = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new(program);
        command.args(args);
        command.env("TERM", "xterm-256color");
        command.env("LC_ALL", "C.UTF-8");
        command.env_remove("NO_COLOR");
        for (name, value) in env {
            command.env(name, value);
        }
        let modes = modes(&*pair.master);
        let child = pair.slave.spawn_command(command).unwrap();
        let process = child.process_id().unwrap();
        let parser = Arc::new(Mutex::new(Emulator::new_with_callbacks(
            rows,
            columns,
            SCROLLBACK,
            Clipboard::default(),
        )));
        let keys = Arc::new(Mutex::new(pair.master.take_writer().unwrap()));
        let (draw, drawn) = watch::channel(0);
        let from = pair.master.try_clone_reader().unwrap();
        std::thread::spawn({
            let (parser, keys) = (parser.clone(), keys.clone());
            move || read(from, &parser, &keys, &draw)
        });
        Self {
            master: pair.master,
            _slave: pair.slave,
            keys,
            child: Some(child),
            process,
            parser,
            drawn,
            modes,
        }
    }

    /// Presses keys, as the bytes that a terminal sends for them.
    pub fn press(&self, keys: &str) {
        let mut to = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        to.write_all(keys.as_bytes()).unwrap();
        to.flush().unwrap();
    }

    /// Makes the terminal another size.
    pub fn resize(&self, rows: u16, columns: u16) {
        self.parser().screen_mut().set_size(rows, columns);
        self.master.resize(PtySize { rows, cols: columns, ..PtySize::default() }).unwrap();
    }

    /// Tells the program of a smaller size, or of the old one again. The emulator stays as large as it was: it does not
    /// survive a program that still writes past a column that has just gone.
    pub fn shrink(&self, rows: u16, columns: u16) {
        self.master.resize(PtySize { rows, cols: columns, ..PtySize::default() }).unwrap();
    }

    /// Sends the program a signal, by its name.
    pub fn signal(&self, name: &str) {
        signal(self.process, name);
    }

    /// The text on the screen.
    pub fn screen(&self) -> String {
        self.parser().screen().contents()
    }

    /// What was copied last.
    ///
    /// # Panics
    /// If it is not encoded as text is on its way to a clipboard.
    pub fn copied(&self) -> String {
        let encoded = self.parser().callbacks().0.clone();
        String::from_utf8(STANDARD.decode(encoded).expect("base64")).expect("text")
    }

    /// Looks at the screen with everything that it knows, such as colours.
    pub fn look<T>(&self, at: impl FnOnce(&vt100::Screen) -> T) -> T {
        at(self.parser().screen())
    }

    /// The screen's text once something holds for the screen.
    ///
    /// # Panics
    /// After [`PATIENCE`], with what is on the screen then.
    pub async fn until(&self, what: &str, holds: impl Fn(&vt100::Screen) -> bool) -> String {
        let mut drawn = self.drawn.clone();
        let search = async {
            loop {
                drawn.borrow_and_update();
                if self.look(&holds) {
                    return self.screen();
                }
                if drawn.changed().await.is_err() {
                    panic!("the terminal is closed before {what}:\n{}", self.screen());
                }
            }
        };
        match tokio::time::timeout(PATIENCE, search).await {
            Ok(screen) => screen,
            Err(_) => panic!("waited {PATIENCE:?} for {what}; on the screen:\n{}", self.screen()),
        }
    }

    /// Waits until a text is on the screen.
    pub async fn until_shown(&self, text: &str) -> String {
        self.until(text, |screen| screen.contents().contains(text)).await
    }

    /// Waits for the program's end and returns its exit code.
    ///
    /// # Panics
    /// After [`PATIENCE`], with what is on the screen then.
    pub async fn exit_code(&mut self) -> u32 {
        let mut child = self.child.take().expect("it has not ended before");
        let mut killer = child.clone_killer();
        let ended = tokio::task::spawn_blocking(move || child.wait());
        let ended = tokio::time::timeout(PATIENCE, ended).await;
        let Ok(ended) = ended else {
            let _ = killer.kill();
            panic!("waited {PATIENCE:?} for the program's end; on the screen:\n{}", self.screen());
        };
        ended.unwrap().unwrap().exit_code()
    }

    /// The program's process.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// What is not as it was before the program ran: nothing, if it minds its manners. Its last words may be on their way
    /// still when it has ended.
    pub async fn left_behind(&self) -> Vec<String> {
        let mut drawn = self.drawn.clone();
        let restored = async { while !self.changed().is_empty() && drawn.changed().await.is_ok() {} };
        let _ = tokio::time::timeout(LAST_WORDS, restored).await;
        self.changed()
    }

    fn changed(&self) -> Vec<String> {
        let parser = self.parser();
        let screen = parser.screen();
        let mut left = Vec::new();
        let mut check = |wrong: bool, what: &str| {
            if wrong {
                left.push(what.to_owned());
            }
        };
        check(screen.alternate_screen(), "the alternate screen");
        check(screen.hide_cursor(), "a hidden cursor");
        check(screen.bracketed_paste(), "bracketed paste");
        check(screen.mouse_protocol_mode() != vt100::MouseProtocolMode::None, "mouse reports");
        let modes = modes(&*self.master);
        check(modes != self.modes, &format!("other modes: {modes} for {}", self.modes));
        left
    }

    fn parser(&self) -> std::sync::MutexGuard<'_, Emulator> {
        self.parser.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// How the terminal treats what is typed: by lines and echoed, or raw.
fn modes(master: &dyn MasterPty) -> String {
    master.get_termios().map_or_else(String::new, |modes| {
        format!("{:?} {:?} {:?}", modes.input_flags, modes.output_flags, modes.local_flags)
    })
}

/// Draws what the program writes, and answers what it asks.
fn read(
    mut from: Box<dyn Read + Send>,
    parser: &Mutex<Emulator>,
    keys: &Mutex<Box<dyn Write + Send>>,
    drawn: &watch::Sender<u64>,
) {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(count) = from.read(&mut bytes)
        && count > 0
    {
        let written = &bytes[..count];
        let mut parser = parser.lock().unwrap_or_else(PoisonError::into_inner);
        parser.process(written);
        let (row, column) = parser.screen().cursor_position();
        drop(parser);
        if written.windows(WHERE_IS_THE_CURSOR.len()).any(|part| part == WHERE_IS_THE_CURSOR) {
            let mut keys = keys.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = write!(keys, "\x1b[{};{}R", row + 1, column + 1);
            let _ = keys.flush();
        }
        drawn.send_modify(|count| *count += 1);
    }
}
