def run_kernel(path, room):
    import ast, asyncio, base64, builtins, codecs, fcntl, inspect, io, json, linecache, os, queue, re, select, signal
    import socket, struct, subprocess, sys, termios, threading, time, traceback, types
    bundle, figures, _ = display_of()
    for n in ("run_kernel", "display_of"):
        del sys.modules["__main__"].__dict__[n]
    main = types.ModuleType("__main__")
    main.__builtins__, sys.modules["__main__"], sys.argv = builtins, main, [""]
    loop, cell, count, sources = asyncio.new_event_loop(), None, 0, []
    asyncio.set_event_loop(loop)
    names = {"text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg", "image/png": "png", "image/jpeg": "jpeg",
             "application/pdf": "pdf", "text/latex": "latex", "application/json": "json", "application/javascript": "javascript"}

    def encode(value):
        return json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "replace") + b"\n"

    def fit(text, most, end=False):
        """The beginning of a text, or its end, that takes at most so many bytes of JSON."""
        keep, size = min(len(text), most), most + 1
        while size > most:
            text = text[len(text) - keep:] if end else text[:keep]
            size = len(encode(text)) - len('""\n')
            keep = len(text) * most // max(size, 1)
        return text

    class Cell:
        """Code that runs, and who waits for what it shows: lines of JSON, and an empty one at the end."""

        def __init__(self, conn, code, env):
            self.conn, self.code, self.env = conn, code, env
            self.room, self.cut, self.failed, self.gone, self.runs, self.over = room, False, False, False, False, False
            self.lock = threading.Lock()

        def write(self, line):
            with self.lock:
                try:
                    self.conn.sendall(line)
                except OSError:
                    self.gone = True

        def send(self, **message):
            line = encode(message)
            with self.lock:
                if len(line) > self.room:
                    self.cut = True
                    return
                self.room -= len(line)
            self.write(line)

        def fail(self, name, value, trace):
            name, value, trace = fit(name, 256), fit(value, 8000), fit(trace, 24000, end=True)
            self.write(encode({"type": "error", "name": name, "value": value, "traceback": trace}))  # there is always room for it

    def show(made, text, is_main):
        message = {"type": "result", "is_main_result": is_main}
        if text is not None:
            message["text"] = text
        for mime, data in made.items():
            if isinstance(data, (bytes, bytearray)):
                data = base64.b64encode(data).decode()
            if mime in names:
                message[names[mime]] = data
            elif mime != "text/plain":
                message.setdefault("extra", {})[mime] = data
        if cell:
            cell.send(**message)

    def show_value(value, is_main):
        made, text = bundle(value), repr(value)
        show(made, text, is_main)

    def display(*values, **_):
        for v in values:
            show_value(v, False)

    # What is printed, by Python or by programs that it starts, comes by pipes.
    pipes = []

    class Pipe:
        def __init__(self, fd, kind):
            self.fd, to = os.pipe()
            os.dup2(to, fd)
            os.close(to)
            self.kind, self.lock, self.decoder = kind, threading.Lock(), codecs.getincrementaldecoder("utf-8")("replace")
            pipes.append(self)

        def left(self):
            return struct.unpack("i", fcntl.ioctl(self.fd, termios.FIONREAD, b"\0\0\0\0"))[0]

        def carry(self):
            with self.lock:
                if not self.left():
                    return False
                text = self.decoder.decode(os.read(self.fd, 1 << 15))
                to = cell
                if to and text:
                    to.send(type=self.kind, text=text, timestamp=time.time_ns())
                return True

        def run(self):
            while True:
                select.select([self.fd], [], [])
                self.carry()

    log = os.dup(2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    out, err = Pipe(1, "stdout"), Pipe(2, "stderr")
    sys.stdin = open(0, encoding="utf-8", errors="replace", closefd=False)
    stdout = io.TextIOWrapper(open(1, "wb", closefd=False), "utf-8", "backslashreplace", line_buffering=True)
    stderr = io.TextIOWrapper(open(2, "wb", closefd=False), "utf-8", "backslashreplace", line_buffering=True)
    sys.stdout = sys.__stdout__ = stdout
    sys.stderr = sys.__stderr__ = stderr

    def drain():
        for stream in {sys.stdout, sys.stderr, stdout, stderr}:
            try:
                stream.flush()
            except Exception:
                pass
        until = time.monotonic() + 2  # what programs in the background print without an end is not waited for
        for p in pipes:
            while p.carry() and time.monotonic() < until:
                pass

    def shell(command):
        stdout.flush()
        stderr.flush()
        subprocess.run(["bash", "-c", command], stdin=subprocess.DEVNULL)

    def change(folder):
        os.chdir(os.path.expanduser(folder or "~"))

    builtins.display, builtins.__sandjet_shell__, builtins.__sandjet_cd__ = display, shell, change

    def plain(code):
        """Python for what notebooks have beside it: !command, %pip, %cd, and %matplotlib, which needs nothing."""
        def line(m):
            indent, mark, rest = m.groups()
            word, _, after = rest.partition(" ")
            if mark == "!" or word == "pip":
                command = rest if mark == "!" else "python3 -m " + rest
                return "%s__sandjet_shell__(%r)" % (indent, command)
            if word == "cd":
                return "%s__sandjet_cd__(%r)" % (indent, after.strip())
            return indent + "pass" if word == "matplotlib" else m.group(0)
        return re.sub(r"(?m)^([ \t]*)([!%])[ \t]*(.*)$", line, code)

    def parse(code, name):
        flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        try:
            return compile(code, name, "exec", flags, True)
        except SyntaxError:
            changed = plain(code)
            if changed == code:
                raise
            return compile(changed, name, "exec", flags, True)

    def evaluate(tree, name, mode):
        made = compile(tree, name, mode, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, True)
        value = eval(made, main.__dict__)
        if made.co_flags & inspect.CO_COROUTINE:
            value = loop.run_until_complete(value)
        return value

    def remember(name, code):
        """Tracebacks show lines of the cells before, of a MiB of them."""
        linecache.cache[name] = (len(code), None, code.splitlines(True), name)
        sources.append(name)
        while len(sources) > 1 and sum(linecache.cache[n][0] for n in sources if n in linecache.cache) > 1 << 20:
            linecache.cache.pop(sources.pop(0), None)

    def execute():
        name = "<cell %d>" % count
        try:
            remember(name, cell.code)
            tree = parse(cell.code, name)
            last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
            evaluate(tree, name, "exec")
            value = None if last is None else evaluate(ast.Expression(last.value), name, "eval")
            if value is not None and not cell.code.rstrip().endswith(";"):
                main.__dict__["_"] = value
                show_value(value, True)
        except BaseException as e:
            tb = e.__traceback__
            while tb and not tb.tb_frame.f_code.co_filename.startswith("<cell "):
                tb = tb.tb_next
            drain()
            try:
                value = str(e)
            except BaseException:
                value = ""
            cell.failed = True
            cell.fail(type(e).__name__, value, "".join(traceback.format_exception(type(e), e, tb)))
        try:
            for made in figures():
                show(made, None, False)
        except Exception as e:
            print("a figure is not shown:", e, file=stderr)

    def interrupt(*_):
        if cell and cell.runs and cell.gone:
            raise KeyboardInterrupt

    def watch(conn):
        """Reads one request, and then waits until who sent it leaves: what runs for it is interrupted then."""
        try:
            with conn.makefile("rb") as f:
                env = json.loads(f.readline())
                size = int(f.readline())
                code = f.read(size)
            if len(code) < size:
                raise EOFError
        except (OSError, EOFError, ValueError):
            return conn.close()
        mine = Cell(conn, code.decode("utf-8", "replace"), env)
        waiting.put(mine)
        try:
            while conn.recv(1):
                pass
        except OSError:
            pass
        mine.gone = True
        while not mine.over:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            time.sleep(0.5)

    def accept():
        while True:
            conn, _ = server.accept()
            threading.Thread(target=watch, args=(conn,), daemon=True).start()

    def run(it):
        nonlocal cell, count
        before = {n: os.environ.get(n) for n in it.env}
        count += 1
        signal.signal(signal.SIGINT, interrupt)
        try:
            os.environ.update(it.env)
            it.send(type="number_of_executions", execution_count=count)
            cell, it.runs = it, True
            execute()
            it.runs = False
            drain()
        finally:
            it.runs, cell = False, None
            for n, v in before.items():
                if v is None:
                    os.environ.pop(n, None)
                else:
                    os.environ[n] = v
        if it.cut and not it.failed:
            it.fail("OutputTooLarge", "the code ran, but it printed and showed more than the %d bytes that are kept: "
                    "have it write into a file and read that" % room, "")
        it.write(b"\n")

    waiting = queue.SimpleQueue()
    server = socket.socket(socket.AF_UNIX)
    mask = os.umask(0o077)
    server.bind(path + ".new")
    os.umask(mask)
    server.listen(128)
    os.rename(path + ".new", path)  # what is there takes connections
    signal.signal(signal.SIGINT, interrupt)
    for p in pipes:
        threading.Thread(target=p.run, daemon=True).start()
    threading.Thread(target=accept, daemon=True).start()
    while True:
        it = waiting.get()
        try:
            if not it.gone:
                run(it)
        except BaseException as e:  # an interrupt that came late, or a fault of what is above
            it.gone or os.write(log, ("%s: %s\n" % (type(e).__name__, e)).encode())
        finally:
            it.over = True
            try:
                it.conn.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            it.conn.close()


