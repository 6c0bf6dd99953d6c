// Sessions as things: made, found, renamed, nested and deleted.
import assert from "node:assert/strict"
import { check, ok, refused } from "./checks.mjs"

export async function sessions(api, { directory }) {
  await check("a session is made, found and renamed", async () => {
    const session = await ok(api.create({ title: "The first" }))
    assert.match(session.id, /^ses_/)
    assert.equal(session.directory, directory)
    assert.deepEqual(await ok(api.get(session.id)), session)
    assert.ok((await ok(api.list())).some(({ id }) => id === session.id))
    const renamed = await ok(api.update(session.id, { title: "The renamed" }))
    assert.equal(renamed.title, "The renamed")
    assert.equal((await ok(api.get(session.id))).title, "The renamed")
    assert.deepEqual(await ok(api.status()), {})
  })

  await check("a session without a title gets one", async () => {
    const session = await ok(api.create({}))
    assert.match(session.title, /^New session - \d{4}-/)
    assert.ok(session.slug && session.version && session.projectID)
  })

  await check("a child is listed with its parent and goes with it", async () => {
    const parent = await ok(api.create({ title: "Parent" }))
    const child = await ok(api.create({ title: "Child", parentID: parent.id }))
    const children = await ok(api.children(parent.id))
    assert.deepEqual(children.map(({ id }) => id), [child.id])
    assert.equal(await ok(api.delete(parent.id)), true)
    for (const { id } of [parent, child]) await refused(404, api.get(id))
  })

  if (!api.allSessions) return

  await check("sessions are searched, and listed over all projects", async () => {
    const session = await ok(api.create({ title: "Unmistakable" }))
    const found = await ok(api.list({ search: "unmistak" }))
    assert.deepEqual(found.map(({ id }) => id), [session.id])
    const all = await ok(api.allSessions({ search: "unmistak" }))
    assert.equal(all[0].id, session.id)
    assert.equal(all[0].project.worktree, directory)
  })
}
