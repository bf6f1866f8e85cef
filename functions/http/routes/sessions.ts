/**
 * Sessions and the files of their workspaces (CHAT-8, CHAT-19). A session is its caller's; holders of
 * `manage` see all of the tenant. To anybody else it does not exist.
 */
import { hasScope, type Scope } from "@toolyard/core/callers/caller";
import { sessionIdSchema } from "@toolyard/core/chat/schema";
import type { CallContext } from "@toolyard/core/context";
import type { CoreDeps } from "@toolyard/core/core-deps";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { newId } from "@toolyard/core/ids";
import type { Session, WorkspaceFile } from "@toolyard/core/ports/sessions";
import { toRfc3339 } from "@toolyard/core/time";
import { presignFile } from "@toolyard/core/workspace/uploads";
import { createWorkspace } from "@toolyard/core/workspace/workspace";
import * as z from "zod";
import { headerOf, type AppContext } from "../app-env.ts";
import { answerBytes, ofAnyType, knownToClient, tooLargeHere } from "../answer-bytes.ts";
import { defineRoute, type IsolatedRequest, type IsolationDriver } from "../define-route.ts";
import { listSchema, pageQuery, toList, toPageRequest } from "../list.ts";
import { defaultExpiresInMs } from "./links.ts";
import { idOf, idParams, timeSchema } from "./shared.ts";

const tags = ["sessions"];
/** The largest workspace that the settings allow; a tenant's own limit is checked while the body arrives. */
const maxFileBytes = 10_737_418_240;

const sessionSchema = z.strictObject({
  id: z.string(),
  object: z.literal("session"),
  caller_id: z.string(),
  workspace_path: z.string().meta({ example: "/mcp_workspaces/sess_1" }),
  bytes: z.int().meta({ description: "Size of all files." }),
  expired: z.boolean().meta({ description: "Idle for longer than 'session_idle_ms'; the files are about to go." }),
  created_at: timeSchema,
  last_used_at: timeSchema,
});

function viewSession(session: Session): z.output<typeof sessionSchema> {
  return {
    id: session.id,
    object: "session",
    caller_id: session.callerId,
    workspace_path: `/mcp_workspaces/${session.id}`,
    bytes: session.bytes,
    expired: session.expired,
    created_at: toRfc3339(session.createdAt),
    last_used_at: toRfc3339(session.lastUsedAt),
  };
}

export const fileSchema = z
  .strictObject({
    id: z.string().meta({ description: "The path; 'after' takes it." }),
    object: z.literal("file"),
    path: z.string().meta({ description: "Relative to the workspace root." }),
    bytes: z.int(),
    media_type: z.string(),
    updated_at: timeSchema,
  })
  .meta({ id: "SessionFile" });

export function viewFile(file: WorkspaceFile): z.output<typeof fileSchema> {
  return {
    id: file.path,
    object: "file",
    path: file.path,
    bytes: file.bytes,
    media_type: file.mediaType,
    updated_at: toRfc3339(file.updatedAt),
  };
}

const fileParams = z.strictObject({ id: z.string(), path: z.string() });

/** @throws GatewayError `session_not_found`, the same for a missing, a foreign and a hidden session */
function visible(context: CallContext, session: Session | undefined, id: string): Session {
  const hidden = session !== undefined && session.callerId !== context.caller.id && !hasScope(context.caller, "manage");
  if (session === undefined || hidden) {
    throw new GatewayError("session_not_found", `There is no session '${id}'.`, { param: "session_id" });
  }
  return session;
}

/** @throws GatewayError `session_not_found`, `session_expired` */
function live(context: CallContext, session: Session | undefined, id: string): Session {
  const seen = visible(context, session, id);
  if (seen.expired) {
    const idleMs = context.config.settings.session_idle_ms;
    throw new GatewayError(
      "session_expired",
      `Session '${id}' was idle for longer than ${idleMs} ms (setting 'session_idle_ms'); start a new one.`,
      { param: "session_id" },
    );
  }
  return seen;
}

export async function liveSession(core: CoreDeps, context: CallContext, id: string): Promise<Session> {
  return live(context, await core.repos.sessions.get(context.tenant, id), id);
}

/** A file may come before the first chat of its session. */
export async function openSession(core: CoreDeps, context: CallContext, id: string): Promise<Session> {
  const { tenant, caller, config } = context;
  const known = await core.repos.sessions.get(tenant, id);
  if (known !== undefined) live(context, known, id);
  else if (!sessionIdSchema.safeParse(id).success) {
    throw new GatewayError("invalid_request", `A session id may hold letters, digits, '_' and '-', 128 at most.`, {
      param: "id",
    });
  }
  return live(context, await core.repos.sessions.touch(tenant, id, caller.id, config.settings.session_idle_ms), id);
}

export async function arrangeFile(owner: IsolationDriver): Promise<IsolatedRequest> {
  const id = newId("session");
  await owner.send("put", `/v1/sessions/${id}/files/notes/secret.json`, { of: "another tenant" });
  return { params: { id, path: "notes/secret.json" } };
}

export async function arrangeSession(owner: IsolationDriver): Promise<IsolatedRequest> {
  const { params } = await arrangeFile(owner);
  return { params: { id: String(params["id"]) } };
}

export const listSessions = defineRoute({
  method: "get",
  path: "/v1/sessions",
  summary: "List sessions",
  description: "One's own; with the scope 'manage' those of the tenant.",
  tags,
  scope: null,
  list: true,
  request: { query: pageQuery },
  responses: { 200: { description: "A page of sessions", schema: listSchema(sessionSchema) } },
  isolation: { kind: "list", arrange: async (owner) => String((await arrangeSession(owner)).params["id"]) },
  async handler(c, { core, tenant, caller, query }) {
    const callerId = hasScope(caller, "manage") ? undefined : caller.id;
    return c.json(toList(await core.repos.sessions.list(tenant, toPageRequest(query), callerId), viewSession, idOf));
  },
});

export const getSession = defineRoute({
  method: "get",
  path: "/v1/sessions/{id}",
  summary: "One session",
  tags,
  scope: null,
  request: { params: idParams },
  responses: { 200: { description: "The session", schema: sessionSchema } },
  isolation: { kind: "object", arrange: arrangeSession },
  handler: async (c, { core, context, params }) =>
    c.json(viewSession(visible(context, await core.repos.sessions.get(context.tenant, params.id), params.id))),
});

export const deleteSession = defineRoute({
  method: "delete",
  path: "/v1/sessions/{id}",
  summary: "Delete a session with its files",
  tags,
  scope: null,
  request: { params: idParams },
  responses: { 204: { description: "Session and files are gone" } },
  isolation: { kind: "object", arrange: arrangeSession },
  async handler(c, { core, context, params }) {
    const session = visible(context, await core.repos.sessions.get(context.tenant, params.id), params.id);
    await createWorkspace(core).removeSession({ tenant: context.tenant, session: session.id });
    return c.body(null, 204);
  },
});

export const listFiles = defineRoute({
  method: "get",
  path: "/v1/sessions/{id}/files",
  summary: "List the files of a session",
  tags,
  scope: null,
  list: true,
  request: {
    params: idParams,
    query: pageQuery.extend({
      after: z.string().min(1).max(1_024).optional().meta({ description: "Path after which the page starts." }),
      order: z.enum(["asc", "desc"]).default("asc").meta({ description: "By path." }),
    }),
  },
  responses: { 200: { description: "A page of files", schema: listSchema(fileSchema) } },
  isolation: { kind: "object", arrange: arrangeSession },
  async handler(c, { core, context, params, query }) {
    const session = await liveSession(core, context, params.id);
    const page = await core.repos.sessions.pageFiles(context.tenant, session.id, toPageRequest(query));
    return c.json(toList(page, viewFile, idOf));
  },
});

export const getFile = defineRoute({
  method: "get",
  path: "/v1/sessions/{id}/files/{path+}",
  summary: "Read a file, whole or by range",
  tags,
  scope: null,
  request: { params: fileParams, headers: { range: "One range of bytes, for example `bytes=0-1023`." } },
  responses: {
    200: { description: "The bytes", mediaType: ofAnyType },
    206: { description: "The bytes of the range", mediaType: ofAnyType },
    304: knownToClient,
    307: tooLargeHere,
    416: { description: "Nothing of the file lies in the range" },
  },
  isolation: { kind: "object", arrange: arrangeFile },
  async handler(c, { app, core, context, params }) {
    const session = await liveSession(core, context, params.id);
    const workspace = createWorkspace(core);
    const place = { tenant: context.tenant, session: session.id, path: params.path };
    const file = await workspace.stat(place);
    return answerBytes(c, {
      bytes: file.bytes,
      mediaType: file.mediaType,
      etag: file.blobKey.slice(file.blobKey.lastIndexOf("/") + 1),
      fileName: file.path.slice(file.path.lastIndexOf("/") + 1),
      open: async (range) => (await readUnchanged(workspace, place, { file, range })).body,
      ...(app.blobLinks === undefined
        ? { link: async () => (await presignFile(core, place, defaultExpiresInMs)).request }
        : {}),
    });
  },
});

/** The head was made from `file`; a body of another version would not fit it. */
async function readUnchanged(
  workspace: ReturnType<typeof createWorkspace>,
  place: { readonly tenant: string; readonly session: string; readonly path: string },
  wanted: {
    readonly file: WorkspaceFile;
    readonly range: { readonly start: number; readonly end: number } | undefined;
  },
): Promise<{ readonly body: AsyncIterable<Uint8Array> }> {
  const opened = await workspace.read(place, wanted.range);
  if (opened.file.blobKey === wanted.file.blobKey) return opened;
  throw new GatewayError("conflict", `The file '${wanted.file.path}' was replaced just now; read it again.`, {
    param: "path",
  });
}

export const putFile = defineRoute({
  method: "put",
  path: "/v1/sessions/{id}/files/{path+}",
  summary: "Write or replace a file",
  description:
    "The body is stored as it arrives; readers see the old file or the new one, whole. A session that does not exist is begun.",
  tags,
  scope: null,
  request: {
    params: fileParams,
    stream: { mediaTypes: ofAnyType, description: "The file's bytes; 'Content-Type' is kept with it." },
    maxBytes: maxFileBytes,
  },
  responses: {
    200: { description: "The file that replaced another", schema: fileSchema },
    201: { description: "The new file", schema: fileSchema },
  },
  isolation: { kind: "object", arrange: arrangeFile, createsMissing: true },
  async handler(c, { core, context, params, stream }) {
    requireWriter(context);
    const session = await openSession(core, context, params.id);
    const workspace = createWorkspace(core);
    const place = { tenant: context.tenant, session: session.id, path: params.path };
    const { replaced } = await workspace.write(place, stream, {
      mediaType: mediaTypeOf(c),
      limit: context.config.settings.workspace_bytes,
    });
    return c.json(viewFile(await workspace.stat(place)), replaced ? 200 : 201);
  },
});

const writerScopes: readonly Scope[] = ["chat", "tools", "manage"];

/** Storage is for those who work with it. */
export function requireWriter({ caller }: CallContext): void {
  if (writerScopes.some((scope) => hasScope(caller, scope))) return;
  throw new GatewayError("permission_denied", "Writing files needs the scope 'chat', 'tools' or 'manage'.", {
    param: "chat",
  });
}

export const mediaTypePattern = /^[\x21-\x7e](?:[\x20-\x7e]{0,253}[\x21-\x7e])?$/;

function mediaTypeOf(c: AppContext): string {
  const type = headerOf(c, "content-type")?.trim() ?? "";
  return mediaTypePattern.test(type) ? type : "application/octet-stream";
}

export const deleteFile = defineRoute({
  method: "delete",
  path: "/v1/sessions/{id}/files/{path+}",
  summary: "Delete a file",
  tags,
  scope: null,
  request: { params: fileParams },
  responses: { 204: { description: "The file is gone" } },
  isolation: { kind: "object", arrange: arrangeFile },
  async handler(c, { core, context, params }) {
    const session = await liveSession(core, context, params.id);
    await createWorkspace(core).delete({ tenant: context.tenant, session: session.id, path: params.path });
    return c.body(null, 204);
  },
});
