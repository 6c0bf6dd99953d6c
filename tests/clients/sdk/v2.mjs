// The second entry point of OpenCode's SDK: the calls of the scripts, in its own form.
import { createOpencodeClient } from "@opencode-ai/sdk/v2"

export function connect(url, directory) {
  const client = createOpencodeClient({ baseUrl: url, directory })
  const { session, permission, question, part } = client
  return {
    client,
    throwing: (sessionID) => session.get({ sessionID }, { throwOnError: true }),

    health: () => client.global.health(),
    config: () => client.config.get(),
    providers: () => client.config.providers(),
    provider: () => client.provider.list(),
    providerAuth: () => client.provider.auth(),
    agents: () => client.app.agents(),
    skills: () => client.app.skills(),
    log: (entry) => client.app.log(entry),
    commands: () => client.command.list(),
    path: () => client.path.get(),
    project: () => client.project.current(),
    projects: () => client.project.list(),
    projectDirectories: (projectID) => client.project.directories({ projectID }),
    vcs: () => client.vcs.get(),
    vcsStatus: () => client.vcs.status(),
    vcsDiff: () => client.vcs.diff({ mode: "git" }),
    mcp: () => client.mcp.status(),
    lsp: () => client.lsp.status(),
    formatter: () => client.formatter.status(),
    toolIds: () => client.tool.ids(),
    files: (path) => client.file.list({ path }),
    readFile: (path) => client.file.read({ path }),
    fileStatus: () => client.file.status(),
    findText: (pattern) => client.find.text({ pattern }),
    findFiles: (query) => client.find.files({ query }),
    findSymbols: (query) => client.find.symbols({ query }),
    allSessions: (query = {}) => client.experimental.session.list(query),
    dispose: () => client.instance.dispose(),

    list: (query = {}) => session.list(query),
    create: (body) => session.create(body),
    status: () => session.status(),
    get: (sessionID) => session.get({ sessionID }),
    delete: (sessionID) => session.delete({ sessionID }),
    update: (sessionID, body) => session.update({ sessionID, ...body }),
    children: (sessionID) => session.children({ sessionID }),
    todo: (sessionID) => session.todo({ sessionID }),
    diff: (sessionID, messageID) => session.diff({ sessionID, messageID }),
    messages: (sessionID, query = {}) => session.messages({ sessionID, ...query }),
    message: (sessionID, messageID) => session.message({ sessionID, messageID }),
    deleteMessage: (sessionID, messageID) => session.deleteMessage({ sessionID, messageID }),
    prompt: (sessionID, body) => session.prompt({ sessionID, ...body }),
    promptAsync: (sessionID, body) => session.promptAsync({ sessionID, ...body }),
    fork: (sessionID, body) => session.fork({ sessionID, ...body }),
    abort: (sessionID) => session.abort({ sessionID }),
    summarize: (sessionID, body) => session.summarize({ sessionID, ...body }),
    command: (sessionID, body) => session.command({ sessionID, ...body }),
    init: (sessionID, body) => session.init({ sessionID, ...body }),
    shell: (sessionID, body) => session.shell({ sessionID, ...body }),
    revert: (sessionID, body) => session.revert({ sessionID, ...body }),
    unrevert: (sessionID) => session.unrevert({ sessionID }),
    respond: (sessionID, permissionID, response) =>
      permission.respond({ sessionID, permissionID, response }),

    updatePart: (changed) =>
      part.update({
        sessionID: changed.sessionID,
        messageID: changed.messageID,
        partID: changed.id,
        part: changed,
      }),
    deletePart: ({ sessionID, messageID, id }) => part.delete({ sessionID, messageID, partID: id }),
    permissions: () => permission.list(),
    reply: (requestID, reply, message) => permission.reply({ requestID, reply, message }),
    questions: () => question.list(),
    answer: (requestID, answers) => question.reply({ requestID, answers }),
    dismiss: (requestID) => question.reject({ requestID }),

    later: (sessionID) => [session.share({ sessionID })],

    events: (options) => client.event.subscribe({}, options),
    globalEvents: (options) => client.global.event(options),
  }
}
