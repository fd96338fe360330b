// The official SDKs judge the fake model at argv[2]: a loop with a tool, the streaming helpers, errors and retries.
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import assert from 'node:assert/strict'

const url = process.argv[2]
const schema = { type: 'object', properties: { command: { type: 'string' } } }
const command = 'echo "ä😀"'

async function messages() {
  const sdk = (maxRetries) => new Anthropic({ apiKey: 'k', baseURL: url, maxRetries })
  const a = sdk(0)
  const tools = [{ name: 'bash', description: 'runs', input_schema: schema }]
  const said = [{ role: 'user', content: `run: ${command}` }]

  let text = ''
  const stream = a.messages.stream({ model: 'm', max_tokens: 100, tools, messages: said })
  stream.on('text', (t) => { text += t })
  const first = await stream.finalMessage()
  assert.equal(first.stop_reason, 'tool_use')
  assert.equal(text, 'I run it.')
  const use = first.content.find((b) => b.type === 'tool_use')
  assert.deepEqual(use.input, { command })

  said.push({ role: 'assistant', content: first.content })
  said.push({ role: 'user', content: [{ type: 'tool_result', tool_use_id: use.id, content: 'done' }] })
  const second = await a.messages.create({ model: 'm', max_tokens: 100, tools, messages: said })
  assert.match(second.content[0].text, /done/)
  assert.ok(second.usage.input_tokens > 0)

  const ask = (content) => ({ model: 'm', max_tokens: 9, messages: [{ role: 'user', content }] })
  await assert.rejects(
    a.messages.create({ model: 'm', max_tokens: 100, messages: [...said.slice(0, 2), { role: 'user', content: 'x' }] }),
    (e) => e instanceof Anthropic.BadRequestError && /tool_use/.test(e.message))
  await assert.rejects(a.messages.create(ask('limit')),
    (e) => e instanceof Anthropic.RateLimitError && e.headers.get('retry-after') === '1')
  await assert.rejects(a.messages.stream(ask('inside')).finalMessage(), /overloaded|later/i)
  const again = await sdk(2).messages.create(ask('once'))
  assert.match(again.content[0].text, /You said: once/)
}

async function completions() {
  const o = new OpenAI({ apiKey: 'k', baseURL: `${url}/v1`, maxRetries: 0 })
  const tools = [{ type: 'function', function: { name: 'bash', parameters: schema } }]
  const said = [{ role: 'user', content: `run: ${command}` }]

  const first = await o.chat.completions
    .stream({ model: 'm', tools, messages: said, stream_options: { include_usage: true } })
    .finalChatCompletion()
  assert.equal(first.choices[0].finish_reason, 'tool_calls')
  assert.ok(first.usage.total_tokens > 0)
  const call = first.choices[0].message.tool_calls[0]
  assert.deepEqual(JSON.parse(call.function.arguments), { command })

  said.push(first.choices[0].message, { role: 'tool', tool_call_id: call.id, content: 'done' })
  const second = await o.chat.completions.create({ model: 'm', tools, messages: said })
  assert.match(second.choices[0].message.content, /done/)

  await assert.rejects(o.chat.completions.create({ model: 'm', messages: said.slice(0, 2) }),
    (e) => e instanceof OpenAI.BadRequestError && /tool_call_id/.test(e.message))
  await assert.rejects(o.chat.completions.create({ model: 'm', messages: [{ role: 'user', content: 'limit' }] }),
    (e) => e instanceof OpenAI.RateLimitError)
}

await messages()
await completions()
console.log('both agree')
