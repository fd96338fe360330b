// What the vendor's client does with a service: each line that it prints is something that held. It asks for Node.js 24, and runs on 20 where
// nothing is written with "await using": it brings its own WebSocket (ws) and what else it needs of newer ones.
import assert from 'node:assert/strict'
import { Client, Sandbox, Snapshot, Volume } from '@deno/sandbox'

const client = new Client()
const text = async (box, command, args, options = {}) => {
  const child = await box.spawn(command, { args, stdout: 'piped', stderr: 'piped', ...options })
  const out = await child.output()
  return [out.status.code, out.stdoutText, out.stderrText]
}

const volume = await Volume.create({ slug: 'files', region: 'ord', capacity: '1GB' })
assert.equal(volume.capacity, 1_000_000_000)
assert.equal((await Volume.get('files')).id, volume.id)
assert.equal(await Volume.get('none'), null)
await assert.rejects(Volume.create({ slug: 'files', region: 'ord', capacity: '1GB' }), { name: 'ClientError', status: 409 })
await client.volumes.create({ slug: 'more', region: 'ord', capacity: '1GB', from: 'builtin:debian-13' })
const page = await client.volumes.list({ limit: 1 })
assert.equal(page.hasMore, true)
const slugs = []
for await (const v of page) slugs.push(v.slug)
assert.deepEqual(slugs, ['files', 'more'])
const snapshot = await Snapshot.create('more', { slug: 'image' })
assert.deepEqual([snapshot.isBootable, (await Snapshot.get('image')).id], [true, snapshot.id])
console.log('volumes')

const box = await Sandbox.create({
  timeout: '5m', labels: { purpose: 'a & b=c ä', n: '1' }, env: { OF_THE_BOX: 'yes' }, allowNet: [], volumes: { '/mnt/files': 'files' },
  secrets: { KEY: { hosts: ['example.com'], value: 'sesame' } },
}).catch((e) => e)
assert.ok(box instanceof Error, 'what is not ASCII is not taken')
console.log('config')
const sandbox = await Sandbox.create({
  timeout: '5m', labels: { purpose: 'a & b=c', n: '1' }, env: { OF_THE_BOX: 'yes' }, allowNet: [], volumes: { '/mnt/files': 'files' },
  secrets: { KEY: { hosts: ['example.com'], value: 'sesame' } }, root: 'image',
})
assert.match(sandbox.id, /^sbx_ord_[a-z0-9]{20}$/)
console.log('create')

assert.deepEqual(await text(sandbox, 'bash', ['-c', 'echo "$OF_THE_BOX $MINE"; echo err >&2; pwd; exit 3'], { env: { MINE: 'too' }, cwd: '/tmp' }),
  [3, 'yes too\n/tmp\n', 'err\n'])
assert.equal(await sandbox.sh`echo ${'a b'}; sudo id -u`.text(), 'a b\n0\n')
assert.notEqual((await text(sandbox, 'bash', ['-c', 'echo $KEY']))[1], 'sesame\n')
await assert.rejects(sandbox.spawn('true', { cwd: '/nowhere' }), /nowhere/)
console.log('spawn')

const cat = await sandbox.spawn('cat', { stdin: 'piped', stdout: 'piped' })
const writer = cat.stdin.getWriter()
await writer.write(new TextEncoder().encode('hello\n'))
await writer.close()
assert.equal((await cat.output()).stdoutText, 'hello\n')
const large = await text(sandbox, 'bash', ['-c', 'head -c 1000000 /dev/zero | tr "\\0" x'])
assert.equal(large[1].length, 1_000_000)
console.log('streams')

const sleep = await sandbox.spawn('sleep', { args: ['600'] })
await sleep.kill('SIGKILL')
assert.deepEqual([(await sleep.status).success, (await sleep.status).signal], [false, 'SIGKILL'])
console.log('kill')

await sandbox.fs.mkdir('dir')
await sandbox.fs.writeTextFile('dir/a.txt', 'text ä')
assert.equal(await sandbox.fs.readTextFile('/home/app/dir/a.txt'), 'text ä')
await sandbox.fs.writeFile('b', new Uint8Array([0, 255]))
assert.deepEqual([...await sandbox.fs.readFile('b')], [0, 255])
await assert.rejects(sandbox.fs.readTextFile('none'), (e) => e.constructor.name === 'NotFound' && e.code === 'ENOENT')
const names = []
for await (const e of await sandbox.fs.readDir('dir')) names.push([e.name, e.isFile])
assert.deepEqual(names, [['a.txt', true]])
await sandbox.fs.remove('dir', { recursive: true })
await sandbox.env.set('LATER', 'here')
assert.equal(await sandbox.env.get('LATER'), 'here')
assert.equal(await sandbox.env.get('NEVER'), undefined)
console.log('files')

const until = await sandbox.extendTimeout('20m')
assert.ok(until - Date.now() > 19 * 60_000)
assert.ok(await sandbox.extendTimeout('50m') - Date.now() < 31 * 60_000)
const listed = await client.sandboxes.list({ labels: { purpose: 'a & b=c' } })
assert.deepEqual(listed.map((s) => [s.id, s.status, s.region, s.labels.n]), [[sandbox.id, 'running', 'ord', '1']])
assert.deepEqual(await client.sandboxes.list({ labels: { purpose: 'another' } }), [])
console.log('list')

await sandbox.fs.writeTextFile('/tmp/kept', 'kept')
await sandbox.close()
const again = await Sandbox.connect(sandbox.id)
assert.equal(await again.fs.readTextFile('/tmp/kept'), 'kept')
console.log('connect')

const refused = async (options, code) => {
  const error = console.error
  console.error = () => {}
  await assert.rejects(Sandbox.create(options), (e) => code === e.code || e.name === code)
  console.error = error
}
await refused({ timeout: '1m', volumes: { '/mnt/files': 'files' } }, 'VOLUME_IN_USE')
await refused({ timeout: '1m', root: 'none' }, 'ROOT_NOT_FOUND')
const second = await Sandbox.create()
await refused({ timeout: '1m' }, 'SANDBOX_LIMIT_EXCEEDED')
await refused({ timeout: '1m', token: 'ddo_another' }, 'InvalidTokenError')
await second.close()
console.log('limits')

await again.kill()
const stopped = async () => (await client.sandboxes.list()).filter((s) => s.status === 'running')
while ((await stopped()).length > 0) await new Promise((resolve) => setTimeout(resolve, 50))
assert.equal((await client.sandboxes.list({ labels: { n: '1' } }))[0].status, 'stopped')
const error = console.error
console.error = () => {}
await assert.rejects(Sandbox.connect(sandbox.id), { code: 'SANDBOX_NOT_FOUND' })
console.error = error
await client.snapshots.delete('image')
await client.volumes.delete('files')
console.log('gone')
process.exit(0)
