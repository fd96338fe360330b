// What the vendor's client does with a service: each line that it prints is something that held. (package.json holds an optional part of a part of it to a
// version without programs for each platform, which not every registry has.)
import assert from 'node:assert/strict'
import { ModalClient, NotFoundError } from 'modal'

const modal = new ModalClient()
const app = await modal.apps.fromName('javascript', { createIfMissing: true })
const image = modal.images.fromRegistry('debian:12')
const files = await modal.volumes.fromName('files', { createIfMissing: true, version: 2 })
const box = await modal.sandboxes.create(app, image, {
  name: 'first', tags: { purpose: 'a' }, blockNetwork: true, timeoutMs: 60_000, volumes: { '/mnt/files': files },
})
assert.equal((await modal.sandboxes.fromName('javascript', 'first')).sandboxId, box.sandboxId)
await assert.rejects(modal.sandboxes.create(app, image, { name: 'first' }), (e) => e.constructor.name === 'AlreadyExistsError')
console.log('create')

const run = await box.exec(['bash', '-c', 'echo "$MINE"; echo err >&2; pwd; echo ä >/mnt/files/file; exit 3'], { workdir: '/tmp', env: { MINE: 'too' } })
assert.deepEqual([await run.stdout.readText(), await run.stderr.readText(), await run.wait()], ['too\n/tmp\n', 'err\n', 3])
console.log('run')

const cat = await box.exec(['cat', '-', '/mnt/files/file'])
await cat.stdin.writeText('word\n')
await cat.closeStdin?.()
if (!cat.closeStdin) await cat.stdin.close()
assert.deepEqual([await cat.stdout.readText(), await cat.wait()], ['word\nä\n', 0])
console.log('stdin')

const late = await box.exec(['sleep', '600'], { timeoutMs: 1000 })
await assert.rejects(late.wait().then((code) => { if (code !== 0) throw new Error(`code ${code}`) }))
console.log('deadline')

assert.deepEqual(await box.getTags(), { purpose: 'a' })
await box.setTags({ purpose: 'third' })
assert.deepEqual(await box.getTags(), { purpose: 'third' })
console.log('tags')

const all = async (params) => { const ids = []; for await (const s of modal.sandboxes.list({ appId: app.appId, ...params })) ids.push(s.sandboxId); return ids }
assert.deepEqual(await all({ tags: { purpose: 'third' } }), [box.sandboxId])
assert.deepEqual(await all({ tags: { purpose: 'a' } }), [])
console.log('list')

const second = await modal.sandboxes.create(app, image)
await assert.rejects(modal.sandboxes.create(app, image))
await assert.rejects(new ModalClient({ tokenId: 'ak-no', tokenSecret: 'as-no' }).apps.fromName('javascript'))
console.log('limits')

for (const one of [box, second]) {
  await one.terminate()
  assert.equal(await one.wait(), 137)
}
await assert.rejects(modal.sandboxes.fromName('javascript', 'first'), (e) => e instanceof NotFoundError)
console.log('gone')
modal.close?.()
process.exit(0)
