// What an unmodified client does: each line that it prints names methods that did what they say. The first argument is the package.
// STEP says on which part to work, SANDBOX and PID what another part has left.
import assert from 'node:assert/strict'

const e2b = await import(process.argv[2])
const { Sandbox, CommandExitError } = e2b
const done = (...methods) => methods.forEach((m) => console.log('yes ' + m))
const refused = async (method, promise) => {
  await assert.rejects(promise, (e) => /501|12:|not served/.test(`${e.name} ${e.message} ${e.code}`), `${method} is not refused`)
  console.log('501 ' + method)
}

const parts = {
  async methods() {
    const box = await Sandbox.create({ timeoutMs: 120_000, metadata: { purpose: 'a & b=c', n: '1' }, envs: { OF_THE_BOX: 'yes' } })
    done('Sandbox.create')
    assert.equal(await box.isRunning(), true)
    done('sandbox.isRunning')

    const info = await box.getInfo()
    assert.deepEqual([info.state, info.metadata.purpose, info.templateId], ['running', 'a & b=c', 'base'])
    done('sandbox.getInfo')
    await box.setTimeout(600_000)
    assert.ok((await box.getInfo()).endAt > info.endAt)
    done('sandbox.setTimeout')
    const other = await Sandbox.create({ timeoutMs: 60_000, metadata: { n: '2' } })
    const found = await Sandbox.list({ query: { metadata: { purpose: 'a & b=c' }, state: ['running'] } }).nextItems()
    assert.deepEqual(found.map((s) => s.sandboxId), [box.sandboxId])
    const pages = Sandbox.list({ limit: 1 })
    const all = [...(await pages.nextItems()), ...(await pages.nextItems())].map((s) => s.sandboxId)
    assert.deepEqual(all.sort(), [box.sandboxId, other.sandboxId].sort())
    assert.equal(pages.hasNext, false)
    done('Sandbox.list')
    const again = await Sandbox.connect(box.sandboxId)
    assert.equal(again.sandboxId, box.sandboxId)
    done('Sandbox.connect')

    let live = ''
    const run = await again.commands.run('echo "$OF_THE_BOX $MINE"; echo err >&2', {
      envs: { MINE: "it's" }, onStdout: (s) => { live += s },
    })
    assert.deepEqual([run.exitCode, run.stdout, run.stderr], [0, "yes it's\n", 'err\n'])
    assert.equal(live, run.stdout)
    await assert.rejects(box.commands.run('exit 3'), (e) => e instanceof CommandExitError && e.exitCode === 3)
    assert.equal((await box.commands.run('pwd', { cwd: '/tmp' })).stdout, '/tmp\n')
    const big = await box.commands.run('head -c 600000 /dev/zero | tr "\\0" x')
    assert.equal(big.stdout.length, 600_000)
    await assert.rejects(box.commands.run('head -c 3000000 /dev/zero | tr "\\0" x'), /not all are kept/)
    await assert.rejects(box.commands.run('sleep 600', { timeoutMs: 500 }), { name: 'TimeoutError' })
    done('commands.run')

    const sleep = await box.commands.run('echo begun; exec sleep 600', { background: true, timeoutMs: 300_000 })
    const listed = await until(async () => (await box.commands.list()).find((p) => p.pid === sleep.pid))
    assert.deepEqual([listed.cmd, listed.args], ['/bin/bash', ['-l', '-c', 'echo begun; exec sleep 600']])
    done('commands.run(background)', 'commands.list')
    const watch = await box.commands.connect(sleep.pid)
    await until(async () => watch.stdout === 'begun\n')
    done('commands.connect')
    assert.equal(await sleep.kill(), true)
    await assert.rejects(sleep.wait(), (e) => e instanceof CommandExitError && e.exitCode !== 0)
    await assert.rejects(watch.wait(), CommandExitError)
    assert.equal(await box.commands.kill(sleep.pid), false)
    assert.equal(await box.commands.kill(7), false)
    done('commands.kill')

    const cat = await box.commands.run('cat; exit 4', { background: true, stdin: true })
    await box.commands.sendStdin(cat.pid, 'hello\n')
    done('commands.sendStdin')
    if (cat.closeStdin) {
      await cat.closeStdin()
      await assert.rejects(cat.wait(), (e) => e.exitCode === 4 && e.stdout === 'hello\n')
      done('commands.closeStdin')
    } else {
      await until(async () => cat.stdout === 'hello\n')
      assert.equal(await cat.kill(), true)
    }

    const text = 'text ä\n'
    await box.files.write('dir/ä b.txt', text)
    assert.equal(await box.files.read('/home/user/dir/ä b.txt'), text)
    assert.equal((await box.commands.run('cat "dir/ä b.txt"')).stdout, text)
    const bytes = new Uint8Array(300_000).map((_, i) => i * 7)
    await box.files.write('bytes', bytes.buffer)
    assert.deepEqual(await box.files.read('bytes', { format: 'bytes' }), bytes)
    await box.files.write([{ path: 'x/1', data: 'one' }, { path: 'x/2', data: 'two' }])
    assert.equal(await box.files.read('x/2'), 'two')
    await box.files.write('empty', '')
    assert.equal(await box.files.read('empty'), '')
    await assert.rejects(box.files.read('none'), (e) => /NotFound/.test(e.name))
    done('files.write', 'files.read')
    assert.deepEqual((await box.files.list('x')).map((e) => [e.name, e.type]).sort(), [['1', 'file'], ['2', 'file']])
    const deep = await box.files.list('.', { depth: 2 })
    assert.ok(deep.some((e) => e.path === '/workspace/x/1'))
    done('files.list')
    assert.equal(await box.files.makeDir('made/deep'), true)
    assert.equal(await box.files.makeDir('made/deep'), false)
    done('files.makeDir')
    const moved = await box.files.rename('x/1', 'new/1')
    assert.deepEqual([moved.name, moved.path, moved.type], ['1', '/workspace/new/1', 'file'])
    assert.equal(await box.files.read(moved.path), 'one')
    done('files.rename')
    assert.equal(await box.files.exists('x/1'), false)
    assert.equal(await box.files.exists('new'), true)
    done('files.exists')
    const stat = await box.files.getInfo('new/1')
    assert.deepEqual([stat.size, stat.type], [3, 'file'])
    done('files.getInfo')
    await box.files.remove('x')
    assert.equal(await box.files.exists('x'), false)
    done('files.remove')

    await refused('pty.create', box.pty.create({ cols: 80, rows: 24, onData() {} }))
    await refused('files.watchDir', box.files.watchDir('.', () => {}))
    await refused('sandbox.pause', (box.pause ?? box.betaPause).call(box))
    await refused('sandbox.createSnapshot', box.createSnapshot())
    await refused('sandbox.getMetrics', box.getMetrics())
    await refused('commands.run(user: root)', box.commands.run('id', { user: 'root' }))
    await refused('files.read(outside of the workspace)', box.files.read('/etc/passwd'))
    if (box.updateNetwork) await refused('sandbox.updateNetwork', box.updateNetwork({ allowInternetAccess: true }))
    if (box.fork) await refused('sandbox.fork', box.fork())
    await refused('Sandbox.create(network)', Sandbox.create({ network: { denyOut: ['10.0.0.0/8'] } }))
    if (e2b.Volume) await refused('Volume.create', e2b.Volume.create('v'))

    await assert.rejects(Sandbox.create('nothing'), /there is no template/)
    await assert.rejects(Sandbox.create({ timeoutMs: 90_000_000 }), /out of range/)
    await assert.rejects(Sandbox.create({ apiKey: 'e2b_00' }), { name: 'AuthenticationError' })
    await assert.rejects(box.files.read('../etc/passwd'), /leads out/)
    await assert.rejects(box.commands.run('true', { envs: { 'A B': '1' } }), /not a name of a variable/)
    const theirs = { apiKey: process.env.OTHER_KEY }
    await assert.rejects(Sandbox.connect(box.sandboxId, theirs), (e) => /NotFound/.test(e.name))
    assert.equal(await Sandbox.kill(box.sandboxId, theirs), false)
    assert.deepEqual(await Sandbox.list(theirs).nextItems(), [])
    const mine = await Sandbox.create(theirs)
    mine.envdAccessToken = undefined
    await assert.rejects(fetch(process.env.E2B_SANDBOX_URL + '/files?path=x', {
      headers: { 'X-Access-Token': await tokenOf(mine.sandboxId, theirs.apiKey), 'E2b-Sandbox-Id': box.sandboxId },
    }).then((r) => { if (r.status !== 200) throw new Error(String(r.status)) }), /401/)
    await mine.kill()

    assert.notEqual(await box.kill(), false)
    assert.equal(await Sandbox.kill(box.sandboxId), false)
    assert.equal(await box.isRunning(), false)
    await assert.rejects(Sandbox.connect(box.sandboxId), (e) => /NotFound/.test(e.name))
    await assert.rejects(box.commands.run('true'), { name: /Timeout|NotFound|Sandbox/ })
    await other.kill()
    done('sandbox.kill')
  },

  async code() {
    const box = await Sandbox.create({ timeoutMs: 300_000, envs: { OF_THE_BOX: 'yes' } })
    const first = await box.runCode('x = 20\nimport os\nos.environ["OF_THE_BOX"], os.environ["MINE"]', { envs: { MINE: "it's" } })
    assert.deepEqual([first.text, first.error, first.executionCount], [`('yes', "it's")`, undefined, 1])
    const seen = []
    const second = await box.runCode('import sys\nprint(x + 2)\nprint("err", file=sys.stderr)\n!echo from a program\nx', {
      language: 'python', onStdout: (l) => seen.push(l.line), onStderr: (l) => seen.push(l.line), onResult: (r) => seen.push(r.text),
    })
    assert.deepEqual([second.logs.stdout.join(''), second.logs.stderr.join('')], ['22\nfrom a program\n', 'err\n'])
    assert.ok(seen.includes('err\n') && seen.includes('20') && second.results[0].isMainResult)
    const wrong = await box.runCode('print("before")\n1 / 0')
    assert.deepEqual([wrong.error.name, wrong.error.value, wrong.logs.stdout], ['ZeroDivisionError', 'division by zero', ['before\n']])
    assert.match(wrong.error.traceback, /1 \/ 0/)
    const shown = await box.runCode('class B:\n  def _repr_html_(self): return "<b>ä</b>"\n  def _repr_png_(self): return b"PNG"\n' +
      '  def __repr__(self): return "b"\ndisplay(B())\nB()')
    assert.deepEqual(shown.results.map((r) => [r.isMainResult, r.text, r.html, r.png]),
      [[false, 'b', '<b>ä</b>', 'UE5H'], [true, 'b', '<b>ä</b>', 'UE5H']])
    assert.equal((await box.runCode('print("x" * 900_000)')).logs.stdout.join('').length, 900_001)
    assert.equal((await box.runCode('print("x" * 3_000_000)')).error.name, 'OutputTooLarge')
    await assert.rejects(box.runCode('import time\ny = 1\ntime.sleep(600)\ny = 2', { timeoutMs: 1000 }), { name: 'TimeoutError' })
    assert.equal((await box.runCode('y')).text, '1')
    assert.equal((await box.runCode('import os; os._exit(1)')).error.name, 'KernelEnded')
    assert.equal((await box.runCode('"x" in globals()')).text, 'False')
    await box.runCode('open("of-code.txt", "w").write("kept")')
    assert.equal(await box.files.read('of-code.txt'), 'kept')
    await box.files.write('module.py', 'value = 7')
    assert.equal((await box.runCode('from module import value; value')).text, '7')
    done('runCode')
    const context = await box.createCodeContext({ cwd: '/tmp' })
    assert.deepEqual([context.language, context.cwd], ['python', '/tmp'])
    assert.equal((await box.runCode('import os; z = 1; os.getcwd()', { context })).text, "'/tmp'")
    done('createCodeContext', 'runCode(context)')
    assert.ok((await box.listCodeContexts()).some((c) => c.id === context.id))
    done('listCodeContexts')
    await box.restartCodeContext(context)
    const again = await box.runCode('"z" in globals()', { context })
    assert.deepEqual([again.text, again.executionCount], ['False', 1])
    done('restartCodeContext')
    await box.removeCodeContext(context.id)
    await assert.rejects(box.runCode('1', { context }), (e) => /NotFound/.test(e.name))
    done('removeCodeContext')
    await refused('runCode(language: javascript)', box.runCode('1', { language: 'javascript' }))
    await refused('createCodeContext(language: r)', box.createCodeContext({ language: 'r' }))
    const other = await Sandbox.create({ apiKey: process.env.OTHER_KEY })
    other.envdAccessToken = other.trafficAccessToken = undefined
    await assert.rejects(other.runCode('1'), /401/)
    await other.kill()
    const running = box.runCode('import time\nprint("begun")\ntime.sleep(600)', { onStdout: () => box.kill(), timeoutMs: 60_000 })
    assert.equal((await running.catch((e) => ({ error: e }))).error?.name !== undefined, true)
    await assert.rejects(box.runCode('1'), { name: 'TimeoutError' })
  },

  // In three processes, between which the gateway or the worker is killed.
  // In three processes: the gateway is killed while the first one's code runs, and the worker before the third.
  async makeCode() {
    const box = await Sandbox.create({ timeoutMs: 600_000 })
    assert.equal((await box.runCode('n = 1\nn')).text, '1')
    await assert.rejects(box.runCode('import time\nn += 1\nprint("begun")\ntime.sleep(4)\nn += 10', {
      onStdout: () => console.log(JSON.stringify({ sandbox: box.sandboxId })),
    }))
  },
  async resumeCode() {
    const box = await Sandbox.connect(process.env.SANDBOX)
    const { text, executionCount } = await box.runCode('n')
    assert.deepEqual([text, executionCount], ['12', 3])
    console.log(JSON.stringify({ sandbox: box.sandboxId }))
  },
  async endCode() {
    const box = await Sandbox.connect(process.env.SANDBOX)
    const { text, error } = await box.runCode('globals().get("n", 0)')
    assert.ok(text === '0' || text === '12', `${text} ${error?.name} ${error?.value}`)
    assert.equal((await box.runCode('n = 5\nn')).text, '5')
    await box.kill()
    console.log('{}')
  },
  async make() {
    const box = await Sandbox.create({ timeoutMs: 600_000 })
    await box.files.write('kept.txt', 'kept')
    const run = await box.commands.run('echo one; sleep 4; echo two', { background: true, timeoutMs: 120_000 })
    await until(async () => run.stdout === 'one\n')
    console.log(JSON.stringify({ sandbox: box.sandboxId, pid: run.pid }))
    process.exit(0) // its stream breaks off
  },
  async resume() {
    const box = await Sandbox.connect(process.env.SANDBOX)
    const run = await box.commands.connect(Number(process.env.PID), { timeoutMs: 0 })
    assert.equal((await run.wait()).stdout, 'one\ntwo\n')
    const next = await box.commands.run('echo begun; sleep 600', { background: true, timeoutMs: 300_000 })
    await until(async () => next.stdout === 'begun\n')
    console.log(JSON.stringify({ sandbox: box.sandboxId, pid: next.pid }))
    process.exit(0)
  },
  async end() {
    const box = await Sandbox.connect(process.env.SANDBOX)
    const run = await box.commands.connect(Number(process.env.PID), { timeoutMs: 0 })
    await assert.rejects(run.wait(), (e) => e instanceof CommandExitError && e.exitCode !== 0 && /interrupted/.test(e.message))
    assert.equal(await box.files.read('kept.txt'), 'kept')
    assert.equal((await box.commands.run('cat kept.txt')).stdout, 'kept')
    await box.kill()
    console.log('{}')
    process.exit(0)
  },
}

async function until(ok) {
  for (let i = 0; i < 600; i++) {
    const v = await ok()
    if (v) return v
    await new Promise((f) => setTimeout(f, 50))
  }
  throw new Error('it did not happen within 30 s')
}

async function tokenOf(id, key) {
  const r = await fetch(`${process.env.E2B_API_URL}/sandboxes/${id}`, { headers: { 'X-API-Key': key } })
  return (await r.json()).envdAccessToken
}

await parts[process.env.STEP]()
