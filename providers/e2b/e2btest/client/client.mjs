// What the vendor's client does with a service: each line that it prints is something that held.
import assert from 'node:assert/strict'
import { Sandbox, Volume, CommandExitError, RateLimitError, SandboxNotFoundError } from 'e2b'

const volume = await Volume.create('files')
assert.equal(volume.name, 'files')
const box = await Sandbox.create('base', {
  timeoutMs: 120_000, metadata: { purpose: 'a & b=c', n: '1' }, envs: { OF_THE_BOX: 'yes' }, allowInternetAccess: false,
  lifecycle: { onTimeout: 'pause' }, volumeMounts: { '/mnt/files': volume },
})
console.log('create')

const run = await box.commands.run('echo "$OF_THE_BOX $MINE"; echo err >&2; pwd', { envs: { MINE: 'too' }, cwd: '/tmp' })
assert.deepEqual([run.exitCode, run.stdout, run.stderr], [0, 'yes too\n/tmp\n', 'err\n'])
await assert.rejects(box.commands.run('exit 3'), (e) => e instanceof CommandExitError && e.exitCode === 3)
console.log('run')

const cat = await box.commands.run('cat', { background: true, stdin: true })
await cat.sendStdin('hello\n')
await cat.closeStdin()
assert.equal((await cat.wait()).stdout, 'hello\n')
console.log('stdin')

const sleep = await box.commands.run('exec sleep 600', { background: true })
assert.ok((await box.commands.list()).some((p) => p.pid === sleep.pid))
assert.equal(await sleep.kill(), true)
await assert.rejects(sleep.wait(), (e) => e instanceof CommandExitError)
assert.equal(await box.commands.kill(sleep.pid), false)
console.log('kill')

await assert.rejects(box.commands.run('sleep 600', { timeoutMs: 300 }), { name: 'TimeoutError' })
await assert.rejects(box.commands.run('true', { cwd: '/nowhere' }), { name: 'InvalidArgumentError' })
console.log('deadline')

await box.files.write('dir/a.txt', 'text ä')
assert.equal(await box.files.read('/home/user/dir/a.txt'), 'text ä')
assert.deepEqual((await box.files.list('dir')).map((e) => [e.name, e.type]), [['a.txt', 'file']])
await assert.rejects(box.files.read('none'), { name: 'FileNotFoundError' })
console.log('files')

const info = await box.getInfo()
assert.equal(info.state, 'running')
assert.equal(info.metadata.purpose, 'a & b=c')
const before = info.endAt
await box.setTimeout(600_000)
assert.ok((await box.getInfo()).endAt > before)
const pages = Sandbox.list({ query: { metadata: { purpose: 'a & b=c' }, state: ['running', 'paused'] } })
assert.deepEqual((await pages.nextItems()).map((s) => s.sandboxId), [box.sandboxId])
assert.deepEqual(await Sandbox.list({ query: { metadata: { purpose: 'another' } } }).nextItems(), [])
console.log('list')

await box.commands.run('echo kept >/tmp/kept')
await box.pause()
assert.equal((await Sandbox.getInfo(box.sandboxId)).state, 'paused')
const woken = await Sandbox.connect(box.sandboxId)
assert.equal((await woken.commands.run('cat /tmp/kept')).stdout, 'kept\n')
console.log('pause')

await Sandbox.create('base', { timeoutMs: 60_000 })
await assert.rejects(Sandbox.create('base'), (e) => e instanceof RateLimitError)
await assert.rejects(Sandbox.create('base', { apiKey: 'e2b_00' }), { name: 'AuthenticationError' })
console.log('limits')

for (const s of await Sandbox.list().nextItems()) assert.equal(await Sandbox.kill(s.sandboxId), true)
assert.equal(await Sandbox.kill(box.sandboxId), false)
await assert.rejects(Sandbox.connect(box.sandboxId), (e) => e instanceof SandboxNotFoundError)
assert.equal(await box.isRunning(), false)
console.log('gone')
