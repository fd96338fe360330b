// A gateway for tests of the client alone: every socket it was asked for, with the frames written to it.

export class FakeGateway {
  sockets = [];
  #waiting = [];

  get WebSocket() {
    const gateway = this;
    return class {
      written = [];
      closed = false;
      constructor(url, protocols) {
        Object.assign(this, { url, protocols });
        gateway.sockets.push(this);
        gateway.#waiting.shift()?.(this);
      }
      send(text) {
        this.written.push(JSON.parse(text));
      }
      close() {
        this.closed = true;
      }
      // What the gateway does.
      open() {
        this.onopen?.({});
        return this;
      }
      say(...frames) {
        for (const f of frames) this.onmessage?.({ data: JSON.stringify(f) });
        return this;
      }
      end(code, reason = "") {
        this.onclose?.({ code, reason });
      }
      last(op) {
        return this.written.findLast((f) => f.op === op);
      }
    };
  }

  /** next returns the next socket that the client makes. */
  next() {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }
}

export const cursor = (n, epoch = "e1") => `${epoch}_${String(n).padStart(20, "0")}`;

/** ev is event n after event prev, which is n - 1 unless given; 0 stands for the beginning. */
export const ev = (conv, n, prev = n - 1) => ({
  op: "ev",
  conv,
  cur: cursor(n),
  prev: prev === 0 ? "-1" : cursor(prev),
  data: { id: `${conv}.${n}`, type: "note", time: "2026-01-01T00:00:00Z" },
});
