/** Group chats: rooms of agents and people (VCP specification 6.1; docs/group-chats.md). */
import type { Presented } from "@toolyard/core/callers/authenticate";
import type { Caller } from "@toolyard/core/callers/caller";
import { requireScope } from "@toolyard/core/calls/admit";
import { stopCall } from "@toolyard/core/calls/cancel";
import type { CallContext } from "@toolyard/core/context";
import type { CoreDeps } from "@toolyard/core/core-deps";
import { GatewayError, toGatewayError } from "@toolyard/core/errors/gateway-error";
import { publishMember } from "@toolyard/core/group-chats/announcer";
import { groupChatEventSchema, turnReasons } from "@toolyard/core/group-chats/events";
import {
  groupChatAccesses,
  groupChatLimitsSchema,
  groupChatModes,
  tenantsOwn,
  type GroupChat,
  type NewGroupChatMember,
} from "@toolyard/core/group-chats/group-chat";
import {
  displayNameSchema,
  findGroupChat,
  noSuchGroupChat,
  personOf,
  requireOwner,
  viewerOf,
} from "@toolyard/core/group-chats/members";
import { startTurn, type StartedTurn, type TurnRequest } from "@toolyard/core/group-chats/start-turn";
import { groupChatViewSchema, messageViewSchema, viewGroupChat, viewMessage } from "@toolyard/core/group-chats/view";
import { newId } from "@toolyard/core/ids";
import * as z from "zod";
import type { AppContext } from "../app-env.ts";
import { defineRoute, type IsolatedRequest, type IsolationDriver } from "../define-route.ts";
import { readIdempotencyKey } from "../idempotency-key.ts";
import { listSchema, pageQuery, toList, toPageRequest } from "../list.ts";
import { setRateLimitHeaders } from "../rate-limit-headers.ts";
import { answerThroughSink } from "../sink.ts";
import { TurnStream } from "../turn-stream.ts";
import { emptyBody, found, idOf, idParams, nameField, notFound, withoutUndefined } from "./shared.ts";

const tags = ["group chats"];

const memberSchema = z
  .strictObject({
    kind: z.enum(["agent", "user"]),
    name: z.string().min(1).max(200).meta({ description: "Of the agent, or the user's id." }),
    display_name: displayNameSchema.optional().meta({ description: "As the others know it." }),
  })
  .transform(({ display_name: displayName, ...member }): NewGroupChatMember => ({
    ...member,
    displayName: displayName ?? null,
  }));

const fields = {
  name: nameField,
  mode: z.enum(groupChatModes).meta({
    description:
      "`sequential`: every agent speaks once a turn. `mentioned`: those speak whose @name is said. `invited`: the moderator decides.",
  }),
  topic: z.string().max(2_000).nullable(),
  moderator: z.string().min(1).max(64).nullable().meta({ description: "Agent that invites, in the mode `invited`." }),
  access: z.enum(groupChatAccesses).meta({
    description:
      "`tenant`: every caller that may chat. `members`: people among the members, the owner, administrators.",
  }),
  limits: groupChatLimitsSchema,
  owner: z.enum(["caller", tenantsOwn]).meta({
    description:
      "`tenant`: the room is nobody's but stands in the tenant's configuration, and keys with the scope `manage`, which this needs, change it.",
  }),
};

const newGroupChatSchema = z.strictObject({
  ...fields,
  mode: fields.mode.default("sequential"),
  topic: fields.topic.default(null),
  moderator: fields.moderator.default(null),
  access: fields.access.default("tenant"),
  limits: fields.limits.prefault({}),
  owner: fields.owner.default("caller"),
  members: z.array(memberSchema).max(64).default([]),
});

/** @throws GatewayError `invalid_request` for a name that no agent has, or a moderator that is missing */
function requireAgents(
  { config }: Pick<CallContext, "config">,
  {
    mode,
    moderator,
    members,
  }: Pick<GroupChat, "mode" | "moderator"> & { readonly members: readonly NewGroupChatMember[] },
): void {
  const known = new Set(config.agents.map(({ name }) => name));
  const missing = members.find(({ kind, name }) => kind === "agent" && !known.has(name));
  if (missing !== undefined) throw noAgent("members", missing.name);
  if (moderator !== null && !known.has(moderator)) throw noAgent("moderator", moderator);
  if (mode === "invited" && moderator === null) {
    throw new GatewayError("invalid_request", "Mode 'invited' needs a 'moderator', the name of an agent.", {
      param: "moderator",
    });
  }
}

/** @throws GatewayError `permission_denied` */
function ownerIdOf(caller: Caller, owner: "caller" | typeof tenantsOwn): string {
  if (owner === "caller") return caller.id;
  requireScope(caller, "manage");
  return tenantsOwn;
}

function noAgent(param: string, name: string): GatewayError {
  return new GatewayError("invalid_request", `There is no agent '${name}'; see GET /v1/agents.`, { param });
}

async function arrangeRoom(owner: IsolationDriver): Promise<string> {
  const room = await owner.send("post", "/v1/group_chats", { name: "of another tenant" });
  return String(room["id"]);
}
const arrangeObject = async (owner: IsolationDriver): Promise<IsolatedRequest> => ({
  params: { id: await arrangeRoom(owner) },
});

export const createGroupChat = defineRoute({
  method: "post",
  path: "/v1/group_chats",
  summary: "Open a group chat",
  description:
    "A room of agents and people: what a person says in it begins a turn, in which agents answer one after the other.",
  tags,
  scope: "chat",
  request: { body: newGroupChatSchema, refusesRepeats: true },
  responses: { 201: { description: "The group chat", schema: groupChatViewSchema } },
  isolation: { kind: "nothing-owned", reason: "Makes a room of the caller's own tenant, with its agents." },
  async handler(c, { core, tenant, context, body: { owner, ...body } }) {
    const ownerId = ownerIdOf(context.caller, owner);
    requireAgents(context, body);
    const id = newId("groupChat");
    const room = await core.repos.groupChats.create(tenant, { ...body, id, ownerId });
    return c.json(viewGroupChat(room), 201);
  },
});

export const listGroupChats = defineRoute({
  method: "get",
  path: "/v1/group_chats",
  summary: "List group chats",
  tags,
  scope: "chat",
  list: true,
  request: { query: pageQuery },
  responses: {
    200: { description: "A page of those that the caller may see", schema: listSchema(groupChatViewSchema) },
  },
  isolation: { kind: "list", arrange: arrangeRoom },
  handler: async (c, { core, tenant, caller, query }) =>
    c.json(
      toList(
        await core.repos.groupChats.list(tenant, { viewer: viewerOf(caller) }, toPageRequest(query)),
        viewGroupChat,
        idOf,
      ),
    ),
});

export const getGroupChat = defineRoute({
  method: "get",
  path: "/v1/group_chats/{id}",
  summary: "One group chat",
  tags,
  scope: "chat",
  request: { params: idParams },
  responses: { 200: { description: "The group chat", schema: groupChatViewSchema } },
  isolation: { kind: "object", arrange: arrangeObject },
  handler: async (c, { core, context, params }) => c.json(viewGroupChat(await findGroupChat(core, context, params.id))),
});

export const updateGroupChat = defineRoute({
  method: "patch",
  path: "/v1/group_chats/{id}",
  summary: "Change a group chat",
  description: "For who made it and administrators. Fields that are left out stay; `limits` is replaced as a whole.",
  tags,
  scope: "chat",
  request: { params: idParams, body: z.strictObject(fields).partial(), refusesRepeats: true },
  responses: { 200: { description: "The group chat as it is now", schema: groupChatViewSchema } },
  isolation: {
    kind: "object",
    arrange: async (owner) => ({ params: { id: await arrangeRoom(owner) }, body: { name: "changed" } }),
  },
  async handler(c, { core, tenant, context, params, body }) {
    const room = await findGroupChat(core, context, params.id);
    requireOwner(room, context.caller);
    const { owner, ...fieldsOf } = withoutUndefined(body);
    const change = { ...fieldsOf, ...(owner === undefined ? {} : { ownerId: ownerIdOf(context.caller, owner) }) };
    requireAgents(context, { ...room, ...change, members: [] });
    const changed = await core.repos.groupChats.update(tenant, params.id, change);
    return c.json(viewGroupChat(found(changed, "group chat", params.id)));
  },
});

export const deleteGroupChat = defineRoute({
  method: "delete",
  path: "/v1/group_chats/{id}",
  summary: "Delete a group chat with all that was said",
  description: "A turn under way is stopped.",
  tags,
  scope: "chat",
  request: { params: idParams },
  responses: { 204: { description: "It is gone" } },
  isolation: { kind: "object", arrange: arrangeObject },
  async handler(c, { core, tenant, context, params }) {
    const room = await findGroupChat(core, context, params.id);
    requireOwner(room, context.caller);
    if (room.currentTurn !== null) await stopCall(core, tenant, room.currentTurn);
    if (!(await core.repos.groupChats.delete(tenant, params.id))) throw notFound("group chat", params.id);
    return c.body(null, 204);
  },
});

export const joinGroupChat = defineRoute({
  method: "post",
  path: "/v1/group_chats/{id}/members",
  summary: "Join a group chat, or bring somebody in",
  description: "Without a body the caller joins. Others are brought in by who made the room and by administrators.",
  tags,
  scope: "chat",
  request: {
    params: idParams,
    body: z.union([memberSchema, z.strictObject({ display_name: displayNameSchema.optional() })]).default({}),
    refusesRepeats: true,
  },
  responses: { 200: { description: "The group chat as it is now", schema: groupChatViewSchema } },
  isolation: { kind: "object", arrange: arrangeObject },
  async handler(c, { core, tenant, context, params, body }) {
    const room = await findGroupChat(core, context, params.id);
    const own = personOf(context.caller);
    const member: NewGroupChatMember =
      "kind" in body ? body : { kind: "user", name: own, displayName: body.display_name ?? null };
    if (member.kind === "agent" || member.name !== own) requireOwner(room, context.caller);
    requireAgents(context, { ...room, moderator: null, mode: "sequential", members: [member] });
    const joined = await core.repos.groupChats.join(tenant, params.id, member);
    if (joined === "full") {
      throw new GatewayError("conflict", "A group chat has at most 64 members; remove one first.", { param: "name" });
    }
    const now = found(joined, "group chat", params.id);
    const isNew = !room.members.some(({ kind, name }) => kind === member.kind && name === member.name);
    if (isNew) await publishMember(core, tenant, { type: "agent:join", room: now.id, member });
    return c.json(viewGroupChat(now));
  },
});

export const leaveGroupChat = defineRoute({
  method: "delete",
  path: "/v1/group_chats/{id}/members/{kind}/{name}",
  summary: "Leave a group chat, or take somebody out",
  tags,
  scope: "chat",
  request: { params: idParams.extend({ kind: z.enum(["agent", "user"]), name: z.string() }) },
  responses: { 200: { description: "The group chat as it is now", schema: groupChatViewSchema } },
  isolation: {
    kind: "object",
    async arrange(owner) {
      const id = await arrangeRoom(owner);
      await owner.send("post", `/v1/group_chats/${id}/members`, { kind: "user", name: "ann" });
      return { params: { id, kind: "user", name: "ann" } };
    },
  },
  async handler(c, { core, tenant, context, params }) {
    const { id, kind, name } = params;
    const room = await findGroupChat(core, context, id);
    if (kind === "agent" || name !== personOf(context.caller)) requireOwner(room, context.caller);
    const member = room.members.find((each) => each.kind === kind && each.name === name);
    const after = await core.repos.groupChats.leave(tenant, id, { kind, name });
    if (after === undefined) throw noSuchGroupChat(id);
    if (member === undefined || !after.left) {
      throw new GatewayError("not_found", `'${name}' is no member of this group chat.`, { param: "name" });
    }
    await publishMember(core, tenant, { type: "agent:leave", room: id, member });
    return c.json(viewGroupChat(after.groupChat));
  },
});

export const listGroupChatMessages = defineRoute({
  method: "get",
  path: "/v1/group_chats/{id}/messages",
  summary: "What was said in a group chat",
  tags,
  scope: "chat",
  list: true,
  request: {
    params: idParams,
    query: pageQuery.extend({
      superseded: z.enum(["true", "false"]).default("false").meta({ description: "With answers that were made anew." }),
    }),
  },
  responses: { 200: { description: "A page of messages", schema: listSchema(messageViewSchema) } },
  isolation: { kind: "object", arrange: arrangeObject },
  async handler(c, { core, tenant, context, params, query }) {
    await findGroupChat(core, context, params.id);
    const filter = { superseded: query.superseded === "true" };
    const page = await core.repos.groupChats.messages(tenant, params.id, filter, toPageRequest(query));
    return c.json(toList(page, viewMessage, idOf));
  },
});

export const getGroupChatMessage = defineRoute({
  method: "get",
  path: "/v1/group_chats/{id}/messages/{message}",
  summary: "One message, also while it is being said",
  tags,
  scope: "chat",
  request: { params: idParams.extend({ message: z.string() }) },
  responses: { 200: { description: "The message", schema: messageViewSchema } },
  isolation: {
    kind: "object",
    async arrange(owner) {
      const id = await arrangeRoom(owner);
      const turn = await owner.send("post", `/v1/group_chats/${id}/messages`, { content: "ours", wait: true });
      const [message] = turn["messages"] as { id: string }[];
      return { params: { id, message: message?.id ?? "" } };
    },
  },
  async handler(c, { core, tenant, context, params }) {
    await findGroupChat(core, context, params.id);
    const message = await core.repos.groupChats.message(tenant, params.id, params.message);
    return c.json(viewMessage(found(message, "message", params.message, "message")));
  },
});

export const stopGroupChat = defineRoute({
  method: "post",
  path: "/v1/group_chats/{id}/stop",
  summary: "Stop the turn under way",
  description: "What was said by then stays. `POST /v1/calls/{id}/cancel` takes back a turn that waits.",
  tags,
  scope: "chat",
  request: { params: idParams, body: emptyBody },
  responses: {
    200: {
      description: "The turn that is being stopped; null: none is under way",
      schema: z.strictObject({ object: z.literal("group_chat.stop"), turn_id: z.string().nullable() }),
    },
  },
  isolation: { kind: "object", arrange: arrangeObject },
  async handler(c, { core, tenant, context, params }) {
    const room = await findGroupChat(core, context, params.id);
    // Who may speak there may also ask for silence, whoever's turn it is.
    if (room.currentTurn !== null) await stopCall(core, tenant, room.currentTurn);
    return c.json({ object: "group_chat.stop", turn_id: room.currentTurn });
  },
});

const turnSchema = z.strictObject({
  object: z.literal("group_chat.turn"),
  id: z.string().meta({ description: "Its call." }),
  group_chat_id: z.string(),
  state: z.enum(["queued", "ended"]),
  reason: z.enum(turnReasons).nullable().meta({ description: "Why it ended." }),
  messages: z.array(messageViewSchema),
  url: z.string(),
});

function viewTurn(
  id: string,
  { callId, messages, reason }: StartedTurn,
  publicUrl: string,
): z.output<typeof turnSchema> {
  return {
    object: "group_chat.turn",
    id: callId,
    group_chat_id: id,
    state: reason === undefined ? "queued" : "ended",
    reason: reason ?? null,
    messages: messages.map(viewMessage),
    url: `${publicUrl}/v1/calls/${callId}`,
  };
}

const how = {
  stream: z.boolean().default(false).meta({ description: "Answer with the turn's events as they happen." }),
  wait: z.boolean().default(false).meta({ description: "Answer when the turn has ended." }),
};

const turnResponses = {
  200: {
    description: "The turn with what was said, or its events.",
    schema: turnSchema,
    content: { "text/event-stream": groupChatEventSchema },
  },
  202: { description: "A worker has it; its events come over `/ws`.", schema: turnSchema },
} as const;

const turnHeaders = { "idempotency-key": "The same turn, however often it is sent." } as const;

export const speakInGroupChat = defineRoute({
  method: "post",
  path: "/v1/group_chats/{id}/messages",
  summary: "Say something in a group chat",
  description: "Begins a turn, in which its agents answer. Turns of one room follow each other.",
  tags,
  scope: "chat",
  admission: "own",
  request: {
    params: idParams,
    body: z.strictObject({
      content: z.string().min(1).max(100_000),
      name: displayNameSchema.optional().meta({ description: "As whom, for keys that speak for several people." }),
      ...how,
    }),
    headers: turnHeaders,
  },
  responses: turnResponses,
  isolation: {
    kind: "object",
    arrange: async (owner) => ({ params: { id: await arrangeRoom(owner) }, body: { content: "hello", wait: true } }),
  },
  handler: (c, { core, presented, params, body }) => {
    const { content, name, ...answer } = body;
    return answerTurn(c, core, { presented, id: params.id, asked: { content, name }, ...answer });
  },
});

export const redoGroupChat = defineRoute({
  method: "post",
  path: "/v1/group_chats/{id}/redo",
  summary: "Have what was said last answered anew",
  description: "The answers until now are kept as superseded.",
  tags,
  scope: "chat",
  admission: "own",
  request: { params: idParams, body: z.strictObject(how).prefault({}), headers: turnHeaders },
  responses: turnResponses,
  isolation: {
    kind: "object",
    async arrange(owner) {
      const id = await arrangeRoom(owner);
      await owner.send("post", `/v1/group_chats/${id}/messages`, { content: "ours", wait: true });
      return { params: { id }, body: { wait: true } };
    },
  },
  handler: (c, { core, presented, params, body }) =>
    answerTurn(c, core, { presented, id: params.id, asked: "redo", ...body }),
});

interface TurnAsked {
  readonly presented: Presented;
  readonly id: string;
  readonly asked: TurnRequest["asked"];
  readonly stream: boolean;
  readonly wait: boolean;
}

function answerTurn(
  c: AppContext,
  core: CoreDeps,
  { presented, id, asked, stream, wait }: TurnAsked,
): Promise<Response> {
  const exchange = c.get("exchange");
  const idempotencyKey = readIdempotencyKey(c);
  return answerThroughSink(c, async (sink) => {
    const writer = stream ? new TurnStream(sink) : undefined;
    try {
      const turn = await startTurn(core, {
        ...presented,
        requestId: exchange.requestId,
        traceId: exchange.traceId,
        span: exchange.span,
        groupChat: id,
        asked,
        later: !stream && !wait,
        // A room is shared: who leaves does not end it for the others.
        signal: new AbortController().signal,
        ...(idempotencyKey === undefined ? {} : { idempotencyKey }),
        ...(writer === undefined ? {} : { onEvent: (event) => writer.write(event) }),
      });
      exchange.callerId = turn.callerId;
      if (writer !== undefined) return await writer.end(turn);
      setRateLimitHeaders(exchange.headers, turn.rate);
      exchange.headers["x-toolyard-call-id"] = turn.callId;
      if (turn.replayed) exchange.headers["idempotent-replayed"] = "true";
      const bytes = Buffer.from(JSON.stringify(viewTurn(id, turn, core.publicUrl)));
      const status = turn.reason === undefined ? 202 : 200;
      sink.head(status, { "content-type": "application/json", "content-length": String(bytes.length) });
      return sink.end(bytes);
    } catch (thrown) {
      if (writer === undefined || !sink.headSent) throw thrown;
      return await writer.fail(toGatewayError(thrown), exchange.requestId);
    }
  });
}
