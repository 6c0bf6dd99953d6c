// Answers as data, pages of the web, and a plan that is handed over: what kedge does by itself.
import assert from "node:assert/strict"
import { createServer } from "node:http"
import { check, ok, refused, textOf, toolsOf } from "./checks.mjs"
import { EventRecorder } from "./event_recorder.mjs"
import { saying } from "./turns.mjs"

const schema = {
  $schema: "https://json-schema.org/draft/2020-12/schema",
  type: "object",
  properties: { name: { type: "string" }, size: { type: "integer", minimum: 1 } },
  required: ["name", "size"],
  additionalProperties: false,
}
const wanted = (retryCount) => ({ type: "json_schema", schema, retryCount })

export async function data(api, { isKedge }) {
  // The real server has no model that follows commands like these.
  if (!isKedge) return
  const session = await ok(api.create({ title: "Data" }))
  const recorder = await EventRecorder.open(api.events)

  await check("an answer is data that fits the schema", async () => {
    const script = 'read README.md\nstructured {"name": "README.md", "size": 42}'
    const answer = await ok(api.prompt(session.id, { format: wanted(), ...saying(script) }))
    assert.deepEqual(answer.info.structured, { name: "README.md", size: 42 })
    assert.equal(answer.info.error, undefined)
    const [tool] = toolsOf(answer)
    assert.deepEqual(
      [tool.tool, tool.state.status, tool.state.title, tool.state.output],
      [
        "StructuredOutput",
        "completed",
        "Structured Output",
        "Structured output captured successfully.",
      ],
    )
    const [prompt] = await ok(api.messages(session.id))
    assert.deepEqual(prompt.info.format, { type: "json_schema", schema })
    const told = await recorder.until(
      ({ type, properties }) => type === "message.updated" && properties.info.structured,
    )
    assert.equal(told.properties.info.structured.size, 42)
  })

  await check("an example fits the schema", async () => {
    const answer = await ok(api.prompt(session.id, { format: wanted(), ...saying("Which file?") }))
    assert.deepEqual(answer.info.structured, { name: "example", size: 1 })
  })

  await check("a model that gives none is asked again, and then it is an error", async () => {
    const body = { format: wanted(1), ...saying('try structured {"name": 1}\nsay No.') }
    const { info } = await ok(api.prompt(session.id, body))
    assert.equal(info.structured, undefined)
    assert.equal(info.error.name, "StructuredOutputError")
    assert.equal(info.error.data.retries, 1)
    assert.match(info.error.data.message, /^Model did not produce structured output/)
    const told = await recorder.of("session.error", session.id)
    assert.equal(told.properties.error.name, "StructuredOutputError")
  })

  await check("a schema that no answer can have is refused", async () => {
    const format = { type: "json_schema", schema: { type: "array" } }
    await refused(400, api.prompt(session.id, { format, ...saying("Which file?") }))
  })

  const pages = createServer((request, response) => {
    const leads = { "/moved": "/", "/inside": "http://169.254.169.254/latest/meta-data/" }
    const location = leads[request.url]
    const body = "<h1>Title</h1><ul><li>one<li><a href='/two'>two</a></ul>"
    response.writeHead(location ? 302 : 200, { "content-type": "text/html", ...(location && { location }) })
    response.end(location ? "" : body)
  })
  await new Promise((resolve) => pages.listen(0, "127.0.0.1", resolve))
  const page = `http://127.0.0.1:${pages.address().port}`

  await check("a server of this machine is read only if a rule names it", async () => {
    const answer = await ok(api.prompt(session.id, saying(`webfetch ${page}/`)))
    assert.match(textOf(answer), /permission rule/)
    const permission = [{ permission: "webfetch", pattern: `${page}/*`, action: "allow" }]
    const named = await ok(api.create({ title: "Pages", permission }))
    const read = await ok(api.prompt(named.id, saying(`webfetch ${page}/moved\nshow`)))
    assert.equal(textOf(read), `# Title\n\n- one\n- [two](${page}/two)`)
    const [tool] = (await ok(api.messages(named.id))).flatMap(toolsOf)
    assert.equal(tool.state.title, `${page}/moved (text/html)`)
    const inside = await ok(api.prompt(named.id, saying(`webfetch ${page}/inside`)))
    assert.match(textOf(inside), /169\.254\.169\.254 is an address of this machine/)
  })
  pages.close()

  if (api.answer) await handsOver(api, recorder)
  recorder.close()
}

async function handsOver(api, recorder) {
  await check("a plan is handed over to the build agent", async () => {
    const session = await ok(api.create({ title: "Plan" }))
    const script = saying("say First this, then that.\nplan_exit")
    const answer = ok(api.prompt(session.id, { agent: "plan", ...script }))
    const { properties } = await recorder.of("question.asked", session.id)
    assert.equal(properties.questions[0].header, "Build Agent")
    assert.equal(await ok(api.answer(properties.id, [["Yes"]])), true)
    assert.equal((await answer).info.agent, "build")
    const messages = await ok(api.messages(session.id))
    assert.deepEqual(
      messages.map(({ info }) => [info.role, info.agent]),
      [["user", "plan"], ["assistant", "plan"], ["user", "build"], ["assistant", "build"]],
    )
    assert.equal(messages[2].parts[0].synthetic, true)
  })
}
