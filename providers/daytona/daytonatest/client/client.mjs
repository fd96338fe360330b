// What the vendor's client does with a service: each line that it prints is something that held.
import assert from 'node:assert/strict'
import { Daytona } from '@daytona/sdk'

const daytona = new Daytona({ useDeprecatedPolling: true })
let volume = await daytona.volume.get('files', true)
while (volume.state !== 'ready') volume = await daytona.volume.get('files')
const box = await daytona.create({
  name: 'first', labels: { purpose: 'a & b=c' }, envVars: { OF_THE_BOX: 'yes' }, networkBlockAll: true, autoStopInterval: 7,
  volumes: [{ volumeId: volume.id, mountPath: '/mnt/files', subpath: 'one' }],
})
assert.deepEqual([box.state, box.name, box.autoStopInterval, box.networkBlockAll], ['started', 'first', 7, true])
await assert.rejects(daytona.create({ name: 'first' }), (e) => e.statusCode === 409)
console.log('create')

const run = await box.process.executeCommand('echo "$OF_THE_BOX $MINE"; echo err >&2; pwd; exit 3', '/tmp', { MINE: 'too' }, 10)
assert.equal(run.exitCode, 3)
assert.equal(run.result, 'yes too\nerr\n/tmp\n')
assert.equal((await box.process.executeCommand('true', '/nowhere')).exitCode, -1)
console.log('execute')

await assert.rejects(box.process.executeCommand('echo lost; sleep 600', undefined, undefined, 1), (e) => e.statusCode === 408)
console.log('deadline')

await box.process.createSession('s')
const at = await box.process.executeSessionCommand('s', { command: 'cd /usr; echo out; echo err >&2' })
assert.deepEqual([at.exitCode, at.stdout, at.stderr], [0, 'out\n', 'err\n'])
const later = await box.process.executeSessionCommand('s', { command: 'pwd; (exit 4)', runAsync: true })
for (;;) {
  const c = await box.process.getSessionCommand('s', later.cmdId)
  if (c.exitCode !== undefined) { assert.equal(c.exitCode, 4); break }
}
assert.equal((await box.process.getSessionCommandLogs('s', later.cmdId)).stdout, '/usr\n')
assert.deepEqual((await box.process.listSessions()).map((s) => s.sessionId), ['s'])
await box.process.deleteSession('s')
console.log('session')

await box.fs.uploadFile(Buffer.from('text ä'), 'dir/a.txt')
assert.equal((await box.fs.downloadFile('/home/daytona/dir/a.txt')).toString(), 'text ä')
assert.deepEqual((await box.fs.listFiles('dir')).map((e) => [e.name, e.isDir, e.size]), [['a.txt', false, 7]])
await box.fs.deleteFile('dir/a.txt')
await assert.rejects(box.fs.downloadFile('dir/a.txt'))
console.log('files')

const all = async (query) => { const ids = []; for await (const s of daytona.list(query)) ids.push(s.id); return ids }
assert.deepEqual(await all({ labels: { purpose: 'a & b=c' } }), [box.id])
assert.deepEqual(await all({ labels: { purpose: 'another' } }), [])
assert.deepEqual(await box.setLabels({ purpose: 'third' }), { purpose: 'third' })
assert.equal((await daytona.get('first')).labels.purpose, 'third')
console.log('labels')

await box.setAutostopInterval(9)
await box.refreshActivity()
await box.process.executeCommand('echo kept >kept; mkdir -p /tmp/x')
await box.stop()
assert.equal(box.state, 'stopped')
await assert.rejects(box.process.executeCommand('true'))
await box.start()
assert.equal((await box.process.executeCommand('cat kept')).result, 'kept\n')
console.log('stop')

await daytona.create({ ephemeral: true })
await assert.rejects(daytona.create(), (e) => e.statusCode === 403)
await assert.rejects(daytona.create({ snapshot: 'none' }), (e) => e.statusCode === 400)
await assert.rejects(new Daytona({ apiKey: 'no', useDeprecatedPolling: true }).create(), (e) => e.statusCode === 401)
console.log('limits')

for (const id of await all()) await (await daytona.get(id)).delete(60, true)
await assert.rejects(daytona.get(box.id), (e) => e.statusCode === 404)
console.log('gone')
