// What a program does wrong is told as an error that the SDK understands.
import assert from "node:assert/strict"
import { check, ok, refused } from "./checks.mjs"
import { saying } from "./turns.mjs"

export async function mistakes(api) {
  await check("what is not there is a 404 with its name", async () => {
    const error = await refused(404, api.get("ses_nope"))
    assert.equal(error.name, "NotFoundError")
    assert.equal(error.data.message, "Session not found: ses_nope")
    await assert.rejects(api.throwing("ses_nope"), /Session not found: ses_nope/)
    await refused(404, api.prompt("ses_nope", saying("say Nothing.")))
    const session = await ok(api.create({}))
    await refused(404, api.message(session.id, "msg_nope"))
    if (!api.reply) return
    assert.equal((await refused(404, api.reply("per_nope", "once")))._tag, "PermissionNotFoundError")
    assert.equal((await refused(404, api.answer("que_nope", [["a"]])))._tag, "QuestionNotFoundError")
  })

  await check("what cannot be understood is a 400 that says why", async () => {
    const session = await ok(api.create({}))
    const error = await refused(400, api.message(session.id, "bad"))
    assert.equal(error.name, "BadRequest")
    assert.match(error.data.message, /starting with "msg", got "bad"/)
    assert.match((await refused(400, api.prompt(session.id, { noReply: true }))).data.message, /parts/)
    const wrong = await refused(400, api.prompt(session.id, { parts: "text" }))
    assert.match(wrong.data.message, /parts.*array/s)
  })
}
