// What the vendor's client does with a service: each line that it prints is something that held.
import assert from 'node:assert/strict'
import { Drive, Sandbox } from '@vercel/sandbox'

// Its address is fixed, and what it asks for a connection is another version's than Node's own.
const { API_URL, VERCEL_TOKEN: token, VERCEL_TEAM_ID: teamId, VERCEL_PROJECT_ID: projectId } = process.env
const fetch = (url, { dispatcher, ...o }) => globalThis.fetch(url.replace('https://vercel.com/api', API_URL), o)
const on = { token, teamId, projectId, fetch }
const failing = (status, code) => (e) => e.response?.status === status && (!code || e.json?.error?.code === code)

const box = await Sandbox.create({ ...on, name: 'first', timeout: 300_000, env: { OF_THE_BOX: 'yes' }, tags: { purpose: 'a b' }, networkPolicy: 'deny-all' })
assert.deepEqual([box.name, box.persistent, box.networkPolicy, box.tags.purpose], ['first', true, 'deny-all', 'a b'])
await assert.rejects(Sandbox.create({ ...on, name: 'first' }), failing(400, 'bad_request'))
console.log('create')

const run = await box.runCommand({ cmd: 'bash', args: ['-c', 'echo "$OF_THE_BOX $MINE ä"; echo err >&2; pwd; exit 3'], cwd: '/tmp', env: { MINE: 'too' } })
assert.deepEqual([run.exitCode, await run.stdout(), await run.stderr()], [3, 'yes too ä\n/tmp\n', 'err\n'])
assert.equal(await (await box.runCommand({ cmd: 'id', args: ['-u'], sudo: true })).stdout(), '0\n')
assert.equal(await (await box.runCommand('pwd')).stdout(), '/vercel/sandbox\n')
console.log('run')

const later = await box.runCommand({ cmd: 'bash', args: ['-c', 'echo out; echo err >&2; exec sleep 600'], detached: true })
let seen = ''
for await (const l of later.logs()) { seen += l.data; if (seen.length === 8) break }
assert.equal((await box.getCommand(later.cmdId)).exitCode, null)
await later.kill('SIGKILL')
assert.equal((await later.wait()).exitCode, 137)
assert.equal(await later.stdout(), 'out\n')
console.log('detached')

assert.equal((await box.runCommand('sleep', ['600'], { timeoutMs: 300 })).exitCode, 137)
console.log('deadline')

await box.mkDir('dir')
await box.writeFiles([{ path: 'dir/a.txt', content: Buffer.from('text ä') }, { path: '/tmp/b', content: Buffer.from([0, 255]), mode: 0o600 }])
assert.equal((await box.readFileToBuffer({ path: '/vercel/sandbox/dir/a.txt' })).toString(), 'text ä')
assert.deepEqual([...(await box.readFileToBuffer({ path: '/tmp/b' }))], [0, 255])
assert.equal(await box.readFileToBuffer({ path: 'none' }), null)
console.log('files')

const lists = { allow: ['*.example.com'], subnets: { allow: ['192.0.2.0/24'], deny: ['192.0.2.1/32'] } }
await box.update({ networkPolicy: lists })
assert.deepEqual(box.networkPolicy, lists)
await box.update({ networkPolicy: { allow: { 'example.com': [{ transform: [{ headers: { a: 'b' } }] }] } } })
console.log('network')

const before = box.expiresAt.getTime()
await box.extendTimeout(60_000)
assert.equal(box.expiresAt.getTime(), before + 60_000)
console.log('extend')

const session = box.currentSession().sessionId
await box.stop()
let resumed = 0
const again = await Sandbox.getOrCreate({ ...on, name: 'first', onResume: async () => { resumed++ }, onCreate: async () => assert.fail('made') })
for (;;) { // the service saves its files first
  try {
    assert.equal((await again.readFileToBuffer({ path: 'dir/a.txt' })).toString(), 'text ä')
    break
  } catch (e) { if (e.response?.status !== 422) throw e }
}
assert.equal(resumed, 1)
assert.notEqual(again.currentSession().sessionId, session)
await assert.rejects(box.currentSession().runCommand('true'), failing(410, 'sandbox_stopped'))
console.log('resume')

const drive = await Drive.getOrCreate({ ...on, name: 'files' })
assert.equal((await Drive.getOrCreate({ ...on, name: 'files' })).driveId, drive.driveId)
const writer = await Sandbox.create({ ...on, name: 'writer', persistent: false, mounts: { '/data': drive } })
await writer.runCommand({ cmd: 'bash', args: ['-c', 'echo kept >/data/file'], sudo: true })
await assert.rejects(Sandbox.create({ ...on, mounts: { '/data': drive } }), failing(409, 'drive_in_use'))
const reader = await Sandbox.create({ ...on, name: 'reader', persistent: false, mounts: { '/data': drive.snapshot() } })
assert.equal(await (await reader.runCommand('cat', ['/data/file'])).stdout(), 'kept\n')
assert.notEqual((await reader.runCommand({ cmd: 'touch', args: ['/data/file'], sudo: true })).exitCode, 0)
await assert.rejects(Sandbox.create(on), failing(429))
for (const b of [writer, reader]) await b.delete()
await drive.delete()
console.log('drives')

const saved = await again.snapshot()
assert.equal(saved.status, 'created')
await saved.delete()
const anew = await Sandbox.getOrCreate({ ...on, name: 'first', resume: false, onCreate: async () => assert.fail('made') })
for (;;) {
  try { await anew.runCommand('true'); assert.fail('it went on') } catch (e) {
    if (failing(410, 'snapshot_not_found')(e)) break
    if (e.response?.status !== 422) throw e
  }
}
console.log('snapshot')

const page = await Sandbox.list({ ...on, tags: { purpose: 'a b' }, limit: 1 })
assert.deepEqual((await page.toArray()).map((s) => s.name), ['first'])
assert.deepEqual((await (await Sandbox.list({ ...on, tags: { purpose: 'another' } })).toArray()), [])
assert.deepEqual((await (await Sandbox.list({ ...on, namePrefix: 'fi', sortBy: 'name' })).toArray()).map((s) => s.name), ['first'])
console.log('list')

await assert.rejects(Sandbox.create({ ...on, timeout: 86_400_001 }), failing(400))
await assert.rejects(Sandbox.create({ ...on, tags: { a: '1', b: '2', c: '3', d: '4', e: '5', f: '6' } }), failing(400))
await assert.rejects(Sandbox.create({ ...on, token: 'no' }), failing(403))
await assert.rejects(Sandbox.create({ ...on, projectId: 'prj_other' }), failing(404))
console.log('limits')

await box.delete({ deleteOrphanSnapshots: true })
await assert.rejects(Sandbox.get({ ...on, name: 'first' }), failing(404))
console.log('gone')
