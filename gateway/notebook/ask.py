def ask(path, patience, env):
    import _socket, os, time  # little, as this runs for each code
    until = time.monotonic() + patience
    while True:
        s = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            s.connect(path)
            break
        except FileNotFoundError:  # it begins only now
            if time.monotonic() > until:
                os._exit(75)
            time.sleep(0.02)
        except OSError:
            os._exit(75)
    with open(3, "rb") as f:
        code = f.read()
    try:
        s.sendall(b"%s\n%d\n%s" % (os.fsencode(env), len(code), code))
        left = b""
        while True:
            piece = s.recv(1 << 16)
            if not piece:
                break
            lines, newline, left = (left + piece).rpartition(b"\n")
            lines += newline
            last = lines == b"\n" or lines.endswith(b"\n\n")
            lines = lines[:-1] if last else lines
            while lines:
                lines = lines[os.write(1, lines):]
            if last:
                os._exit(0)
    except OSError:
        pass
    os._exit(76)


