/**
 * Group chats, their members and what was said. Contract: `GroupChatRepo`. Who has a room is said by the call of
 * its turn: while that has not ended the room is taken, so that a process that dies leaves no lock behind.
 */
import { getTableName, type InferSelectModel } from "drizzle-orm";
import type { GroupChat, GroupChatMessage, MessageState } from "@toolyard/core/group-chats/group-chat";
import type {
  BegunTurn,
  GroupChatChange,
  GroupChatRepo,
  GroupChatFilter,
  MessageEnd,
  MessageNote,
  NewGroupChat,
  NewSaying,
  OpenedMessage,
} from "@toolyard/core/ports/group-chats";
import type { PageRequest } from "@toolyard/core/ports/page";
import * as z from "zod";
import type { Database, Shards, SqlValue, Statement, StatementResult } from "../database.ts";
import { groupChatMessages } from "../schema/group-chat-messages.ts";
import { groupChats } from "../schema/group-chats.ts";
import { readColumn } from "../sql.ts";
import { now } from "./fragments.ts";
import { readAll, readFirst, readPage, readWritten, type OnBrokenRow, type Reader, type Row } from "./rows.ts";

/** Of a room. */
const mostMembers = 64;

const isOpen = (call: string): string =>
  `EXISTS (SELECT 1 FROM calls AS c WHERE c.tenant = ?1 AND c.id = ${call} AND c.state IN ('queued', 'running', 'input_required'))`;

const membersOf = `(SELECT json_group_array(json_object('kind', m.kind, 'name', m.name, 'displayName', m.display_name,
    'joinedAt', m.joined_at)) FROM (SELECT * FROM group_chat_members AS every
      WHERE every.tenant = g.tenant AND every.group_chat = g.id ORDER BY every.place, every.name) AS m)`;
const roomColumns = `g.*, ${membersOf} AS members, CASE WHEN ${isOpen("g.current_turn")} THEN g.current_turn END AS held_by`;
const readRoom = `SELECT ${roomColumns} FROM group_chats AS g WHERE g.tenant = ?1 AND g.id = ?2`;

const insertRoom = `INSERT INTO group_chats (tenant, id, name, mode, topic, moderator, access, limits, owner_id)
  VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT DO NOTHING`;
const insertMembers = `INSERT INTO group_chat_members (tenant, group_chat, kind, name, display_name, place)
  SELECT ?1, ?2, value ->> 'kind', value ->> 'name', value ->> 'displayName', key FROM json_each(?3) WHERE true
  ON CONFLICT DO NOTHING`;

/** A field that is to become null is said to be there by its own flag. */
const updateRoom = `UPDATE group_chats SET name = COALESCE(?3, name), mode = COALESCE(?4, mode),
  topic = CASE WHEN ?5 THEN ?6 ELSE topic END, moderator = CASE WHEN ?7 THEN ?8 ELSE moderator END,
  access = COALESCE(?9, access), limits = COALESCE(?10, limits), owner_id = COALESCE(?11, owner_id), updated_at = ${now}
  WHERE tenant = ?1 AND id = ?2`;

const readNaming = `SELECT g.id, g.name, 'members' AS field FROM group_chat_members AS m
    JOIN group_chats AS g ON g.tenant = m.tenant AND g.id = m.group_chat
    WHERE m.tenant = ?1 AND m.kind = 'agent' AND m.name = ?2
  UNION ALL SELECT id, name, 'moderator' FROM group_chats WHERE tenant = ?1 AND moderator = ?2 ORDER BY 1, 3`;

const insertMember = `INSERT INTO group_chat_members (tenant, group_chat, kind, name, display_name, place)
  SELECT ?1, ?2, ?3, ?4, ?5, (SELECT COALESCE(MAX(place), -1) + 1 FROM group_chat_members WHERE tenant = ?1 AND group_chat = ?2)
  WHERE EXISTS (SELECT 1 FROM group_chats WHERE tenant = ?1 AND id = ?2)
    AND (SELECT COUNT(*) FROM group_chat_members WHERE tenant = ?1 AND group_chat = ?2) < ${mostMembers}
  ON CONFLICT DO UPDATE SET display_name = COALESCE(excluded.display_name, display_name)`;
const deleteMember = "DELETE FROM group_chat_members WHERE tenant = ?1 AND group_chat = ?2 AND kind = ?3 AND name = ?4";

/** Connections hear nothing more of a room that their caller may not see. */
const dropListeners = `UPDATE connections SET subscriptions = (
    SELECT json_group_object(s.key, json(s.value)) FROM json_each(connections.subscriptions) AS s
    WHERE NOT (s.value ->> 'topic' = 'group_chat' AND s.value ->> 'group_chat_id' = ?2))
  WHERE tenant = ?1
    AND EXISTS (SELECT 1 FROM json_each(connections.subscriptions) AS s WHERE s.value ->> 'group_chat_id' = ?2)
    AND EXISTS (SELECT 1 FROM group_chats AS g WHERE g.tenant = ?1 AND g.id = ?2 AND g.access = 'members'
      AND g.owner_id <> caller ->> 'id' AND caller ->> 'role' <> 'operator'
      AND NOT EXISTS (SELECT 1 FROM json_each(caller, '$.scopes') WHERE value = 'manage')
      AND NOT EXISTS (SELECT 1 FROM group_chat_members AS m WHERE m.tenant = ?1 AND m.group_chat = ?2
        AND m.kind = 'user' AND m.name = COALESCE(caller ->> 'userId', caller ->> 'id')))`;

const insertSaying = `INSERT INTO group_chat_messages
    (tenant, group_chat, id, turn, position, author_kind, author_name, author_display_name, content, state)
  SELECT ?1, ?2, ?3, ?4, 0, ?5, ?6, ?7, ?8, 'queued' WHERE EXISTS (SELECT 1 FROM group_chats WHERE tenant = ?1 AND id = ?2)
  ON CONFLICT DO NOTHING`;
const readSaying =
  "SELECT * FROM group_chat_messages WHERE tenant = ?1 AND group_chat = ?2 AND turn = ?3 AND position = 0";

const own = "(SELECT id FROM group_chat_messages WHERE tenant = ?1 AND group_chat = ?2 AND turn = ?3 AND position = 0)";
/** Who spoke first goes first. */
const othersFirst = `EXISTS (SELECT 1 FROM group_chat_messages AS m WHERE m.tenant = ?1 AND m.group_chat = ?2
  AND m.state = 'queued' AND m.turn <> ?3 AND m.id < ${own} AND ${isOpen("m.turn")})`;
const takeRoom = `UPDATE group_chats SET current_turn = ?3, turn_started_at = ${now}, turns = turns + (?4 = 0)
  WHERE tenant = ?1 AND id = ?2 AND current_turn IS NOT ?3 AND NOT ${isOpen("current_turn")} AND NOT ${othersFirst}`;
const isHolder = "EXISTS (SELECT 1 FROM group_chats AS g WHERE g.tenant = ?1 AND g.id = ?2 AND g.current_turn = ?3)";
/** With those before it whose turns were given up: they were said, and nobody has answered. */
const numberSayings = `UPDATE group_chat_messages SET state = 'completed', finished_at = ${now},
    turn_number = (SELECT turns FROM group_chats WHERE tenant = ?1 AND id = ?2)
  WHERE tenant = ?1 AND group_chat = ?2 AND state = 'queued' AND id <= ${own}
    AND (turn = ?3 OR NOT ${isOpen("turn")}) AND ${isHolder}`;
/** The newest thing said that was answered, or was to be. */
const lastSaid = `(SELECT id FROM group_chat_messages WHERE tenant = ?1 AND group_chat = ?2 AND position = 0
  AND turn_number IS NOT NULL ORDER BY turn_number DESC, id DESC LIMIT 1)`;
const trigger = `CASE WHEN ?4 THEN ${lastSaid} ELSE ${own} END`;
const numberOfTrigger = `(SELECT turn_number FROM group_chat_messages WHERE tenant = ?1 AND id = ${trigger})`;
const supersede = `UPDATE group_chat_messages SET superseded_by = ?3
  WHERE ?4 AND tenant = ?1 AND group_chat = ?2 AND position > 0 AND turn <> ?3 AND superseded_by IS NULL
    AND turn_number = ${numberOfTrigger} AND ${isHolder}`;
const stopLeftOver = (turn: string): string => `UPDATE group_chat_messages SET state = 'stopped', finished_at = ${now}
  WHERE tenant = ?1 AND group_chat = ?2 AND state = 'streaming' AND ${turn}`;
const readTrigger = `SELECT * FROM group_chat_messages WHERE tenant = ?1 AND group_chat = ?2 AND id = ${trigger}`;
const readHistory = `SELECT * FROM group_chat_messages
  WHERE tenant = ?1 AND group_chat = ?2 AND superseded_by IS NULL AND id <> ${trigger}
    AND (turn_number < ${numberOfTrigger} OR (turn_number = ${numberOfTrigger} AND position = 0))
  ORDER BY turn_number DESC, position DESC, id DESC
  LIMIT COALESCE((SELECT limits ->> 'history' FROM group_chats WHERE tenant = ?1 AND id = ?2), 0)`;
const readSpoken = `SELECT * FROM group_chat_messages WHERE tenant = ?1 AND group_chat = ?2 AND turn = ?3 AND position > 0
  ORDER BY position`;

const openMessage = `INSERT INTO group_chat_messages (tenant, group_chat, turn, id, position, turn_number, author_kind,
    author_name, author_display_name, content, state, reason, attempt)
  SELECT ?1, ?2, ?3, ?4, ?5, (SELECT turn_number FROM group_chat_messages WHERE tenant = ?1 AND id = ?6), 'agent', ?7, ?8,
    '', 'streaming', ?9, ?10 WHERE ${isHolder}
  ON CONFLICT (tenant, group_chat, turn, position) DO UPDATE SET author_name = excluded.author_name,
    author_display_name = excluded.author_display_name, content = '', reason = excluded.reason, attempt = excluded.attempt
  WHERE state = 'streaming' AND excluded.attempt > group_chat_messages.attempt`;
const readPosition =
  "SELECT * FROM group_chat_messages WHERE tenant = ?1 AND group_chat = ?2 AND turn = ?3 AND position = ?4 AND attempt = ?5";
/** Who has the turn by now may have read already what was said, and speaks at this place itself. */
const isOurs = `tenant = ?1 AND id = ?2 AND attempt = ?3 AND state = 'streaming' AND NOT EXISTS (
    SELECT 1 FROM calls AS c WHERE c.tenant = ?1 AND c.id = group_chat_messages.turn AND c.attempt > ?3)`;
const noteMessage = `UPDATE group_chat_messages SET content = ?4, call_id = ?5 WHERE ${isOurs}`;
const closeMessage = `UPDATE group_chat_messages SET content = ?4, call_id = ?5, state = ?6, error = ?7, read_outside = ?8,
  finished_at = ${now} WHERE ${isOurs}`;
/** Of whose turn nothing more comes. */
const messageColumns = `*, NOT ${isOpen("turn")} AS is_over`;
const readMessage = `SELECT ${messageColumns} FROM group_chat_messages WHERE tenant = ?1 AND group_chat = ?2 AND id = ?3`;
const readTurn = `SELECT ${messageColumns} FROM group_chat_messages
  WHERE tenant = ?1 AND group_chat = ?2 AND turn = ?3 ORDER BY position`;

/** Who was taken over leaves the room to who has it. */
const isNewest = "EXISTS (SELECT 1 FROM calls AS c WHERE c.tenant = ?1 AND c.id = ?3 AND c.attempt = ?4)";
const leaveRoom = `UPDATE group_chats SET current_turn = NULL, turn_started_at = NULL
  WHERE tenant = ?1 AND id = ?2 AND current_turn = ?3 AND ${isNewest}`;
const readNext = `SELECT m.turn FROM group_chat_messages AS m WHERE m.tenant = ?1 AND m.group_chat = ?2
  AND m.state = 'queued' AND m.turn <> ?3 AND ${isOpen("m.turn")} ORDER BY m.id LIMIT 1`;

const maySee = `(g.access = 'tenant' OR g.owner_id = ?2 OR EXISTS (SELECT 1 FROM group_chat_members AS m
  WHERE m.tenant = g.tenant AND m.group_chat = g.id AND m.kind = 'user' AND m.name = ?3))`;

export function createGroupChatRepo(shards: Shards, onBrokenRow: OnBrokenRow): GroupChatRepo {
  const read = readersOf(onBrokenRow);
  const of = (tenant: string): Database => shards.databaseFor(tenant);
  return {
    create: async (tenant, groupChat) => {
      const [, , found] = await of(tenant).batch(createStatements(tenant, groupChat), { repeatable: true });
      return readWritten(read.rooms, found);
    },

    get: async (tenant, id) => {
      const [found] = await of(tenant).batch([{ sql: readRoom, args: [tenant, id] }], { readonly: true });
      return readFirst(read.rooms, found);
    },

    namingAgent: async (tenant, agent) => {
      const [found] = await of(tenant).batch([{ sql: readNaming, args: [tenant, agent] }], { readonly: true });
      return (found?.rows ?? []).map((row) => ({
        id: String(row["id"]),
        name: String(row["name"]),
        field: row["field"] === "moderator" ? "moderator" : "members",
      }));
    },

    list: async (tenant, filter, page) => {
      const [found] = await of(tenant).batch([selectRooms(tenant, filter, page)], { readonly: true });
      return readPage(read.rooms, found, page);
    },

    update: async (tenant, id, change) => {
      const args = [tenant, id];
      const [, , found] = await of(tenant).batch(
        [
          { sql: updateRoom, args: [...args, ...changeArgs(change)] },
          { sql: dropListeners, args },
          { sql: readRoom, args },
        ],
        { repeatable: true },
      );
      return readFirst(read.rooms, found);
    },

    delete: async (tenant, id) => {
      const args = [tenant, id];
      const [deleted] = await of(tenant).batch([
        { sql: "DELETE FROM group_chats WHERE tenant = ?1 AND id = ?2", args },
        { sql: "DELETE FROM group_chat_members WHERE tenant = ?1 AND group_chat = ?2", args },
        { sql: "DELETE FROM group_chat_messages WHERE tenant = ?1 AND group_chat = ?2", args },
      ]);
      return (deleted?.changes ?? 0) > 0;
    },

    join: async (tenant, id, { kind, name, displayName }) => {
      const [, found] = await of(tenant).batch(
        [
          { sql: insertMember, args: [tenant, id, kind, name, displayName] },
          { sql: readRoom, args: [tenant, id] },
        ],
        { repeatable: true },
      );
      const room = readFirst(read.rooms, found);
      if (room === undefined || room.members.some((each) => each.kind === kind && each.name === name)) return room;
      return "full";
    },

    leave: async (tenant, id, { kind, name }) => {
      const args = [tenant, id];
      // Whether somebody has left is counted, so a batch whose answer was lost is not sent again.
      const [deleted, , found] = await of(tenant).batch([
        { sql: deleteMember, args: [...args, kind, name] },
        { sql: dropListeners, args },
        { sql: readRoom, args },
      ]);
      const groupChat = readFirst(read.rooms, found);
      return groupChat === undefined ? undefined : { groupChat, left: (deleted?.changes ?? 0) > 0 };
    },

    say: async (tenant, id, saying) => {
      const [, found] = await of(tenant).batch(sayStatements(tenant, id, saying), { repeatable: true });
      return readFirst(read.messages, found);
    },

    begin: (tenant, id, turn) => begin({ database: of(tenant), read }, tenant, id, turn),

    open: async (tenant, id, message) => {
      const [, found, room] = await of(tenant).batch(openStatements(tenant, id, message), { repeatable: true });
      return withRoom(read, found, room);
    },

    note: async (tenant, note) => {
      await of(tenant).batch([{ sql: noteMessage, args: noteArgs(tenant, note) }], { repeatable: true });
    },

    close: async (tenant, id, message) => {
      const [, found, room] = await of(tenant).batch(closeStatements(tenant, id, message), { repeatable: true });
      return withRoom(read, found, room);
    },

    end: async (tenant, id, turn) => {
      const args = [tenant, id, turn.id];
      const fenced = [...args, turn.attempt];
      const [, , next] = await of(tenant).batch(
        [
          { sql: stopLeftOver(`turn = ?3 AND ${isNewest}`), args: fenced },
          { sql: leaveRoom, args: fenced },
          { sql: readNext, args },
        ],
        { repeatable: true },
      );
      const waiting = next?.rows[0]?.["turn"];
      return typeof waiting === "string" ? waiting : undefined;
    },

    messages: async (tenant, id, { superseded }, page) => {
      const [found] = await of(tenant).batch([selectMessages(tenant, id, superseded, page)], { readonly: true });
      return readPage(read.messages, found, page);
    },

    message: async (tenant, id, message) => {
      const [found] = await of(tenant).batch([{ sql: readMessage, args: [tenant, id, message] }], { readonly: true });
      return readFirst(read.messages, found);
    },

    turn: async (tenant, id, turn) => {
      const [found] = await of(tenant).batch([{ sql: readTurn, args: [tenant, id, turn] }], { readonly: true });
      return readAll(read.messages, found);
    },
  };
}

async function begin(
  { database, read }: { readonly database: Database; readonly read: Readers },
  tenant: string,
  id: string,
  turn: { readonly id: string; readonly redo: boolean },
): Promise<BegunTurn | "busy" | "nothing_to_redo" | undefined> {
  const args = [tenant, id, turn.id];
  const asked = [...args, turn.redo ? 1 : 0];
  const [, , , , found, said, before, since] = await database.batch(
    [
      { sql: takeRoom, args: asked },
      { sql: numberSayings, args },
      { sql: supersede, args: asked },
      { sql: stopLeftOver(`turn <> ?3 AND ${isHolder}`), args },
      { sql: `${readRoom.replace("g.*,", `g.*, ${now} - g.turn_started_at AS elapsed,`)}`, args: args.slice(0, 2) },
      { sql: readTrigger, args: asked },
      { sql: readHistory, args: asked },
      { sql: readSpoken, args },
    ],
    { repeatable: true },
  );
  const row = found?.rows[0];
  if (row === undefined) return undefined;
  if (row["current_turn"] !== turn.id) return "busy";
  const [room, saying] = [readWritten(read.rooms, found), readFirst(read.messages, said)];
  if (saying === undefined) return "nothing_to_redo";
  return {
    groupChat: room,
    history: readAll(read.messages, before).toReversed(),
    trigger: saying,
    spoken: readAll(read.messages, since),
    elapsedMs: Number(row["elapsed"] ?? 0),
  };
}

function createStatements(tenant: string, room: NewGroupChat): readonly Statement[] {
  const { id, name, mode, topic, moderator, access, limits, ownerId, members } = room;
  const fields = [name, mode, topic, moderator, access, JSON.stringify(limits), ownerId];
  return [
    { sql: insertRoom, args: [tenant, id, ...fields] },
    { sql: insertMembers, args: [tenant, id, JSON.stringify(members)] },
    { sql: readRoom, args: [tenant, id] },
  ];
}

function changeArgs({ name, mode, topic, moderator, access, limits, ownerId }: GroupChatChange): SqlValue[] {
  const setting = (value: string | null | undefined): SqlValue[] => [value === undefined ? 0 : 1, value ?? null];
  return [
    name ?? null,
    mode ?? null,
    ...setting(topic),
    ...setting(moderator),
    access ?? null,
    limits === undefined ? null : JSON.stringify(limits),
    ownerId ?? null,
  ];
}

function sayStatements(tenant: string, groupChat: string, { id, turn, author, content }: NewSaying): Statement[] {
  const said = [author.kind, author.name, author.displayName, content];
  return [
    { sql: insertSaying, args: [tenant, groupChat, id, turn, ...said] },
    { sql: readSaying, args: [tenant, groupChat, turn] },
  ];
}

function openStatements(tenant: string, groupChat: string, message: OpenedMessage): Statement[] {
  const { id, turn, attempt, trigger: answered, position, author, reason } = message;
  const opened = [id, position, answered, author.name, author.displayName, reason, attempt];
  return [
    { sql: openMessage, args: [tenant, groupChat, turn, ...opened] },
    { sql: readPosition, args: [tenant, groupChat, turn, position, attempt] },
    { sql: readRoom, args: [tenant, groupChat] },
  ];
}

function closeStatements(tenant: string, groupChat: string, message: MessageEnd): Statement[] {
  const { state, error, readOutside } = message;
  const end = [state, error === null ? null : JSON.stringify(error), readOutside ? 1 : 0];
  return [
    { sql: closeMessage, args: [...noteArgs(tenant, message), ...end] },
    {
      sql: `${readMessage} AND attempt = ?4 AND state <> 'streaming'`,
      args: [tenant, groupChat, message.id, message.attempt],
    },
    { sql: readRoom, args: [tenant, groupChat] },
  ];
}

function noteArgs(tenant: string, { id, attempt, content, callId }: MessageNote): SqlValue[] {
  return [tenant, id, attempt, content, callId];
}

function selectRooms(
  tenant: string,
  { viewer, ownerId }: GroupChatFilter,
  { limit, order, after }: PageRequest,
): Statement {
  const seen = viewer === undefined ? "true" : maySee;
  const owned = ownerId === undefined ? "" : "AND g.owner_id = ?6";
  const beyond = after === undefined ? "" : `AND g.id ${order === "asc" ? ">" : "<"} ?4`;
  return {
    sql: `SELECT ${roomColumns} FROM group_chats AS g WHERE g.tenant = ?1 AND ${seen} ${owned} ${beyond}
      ORDER BY g.id ${order === "asc" ? "ASC" : "DESC"} LIMIT ?5`,
    args: [
      tenant,
      viewer?.callerId ?? null,
      viewer?.person ?? null,
      after ?? null,
      limit + 1,
      ...(ownerId === undefined ? [] : [ownerId]),
    ],
  };
}

function selectMessages(
  tenant: string,
  id: string,
  superseded: boolean,
  { limit, order, after }: PageRequest,
): Statement {
  const beyond = after === undefined ? "" : `AND id ${order === "asc" ? ">" : "<"} ?3`;
  return {
    sql: `SELECT ${messageColumns} FROM group_chat_messages WHERE tenant = ?1 AND group_chat = ?2
      ${superseded ? "" : "AND superseded_by IS NULL"} ${beyond} ORDER BY id ${order === "asc" ? "ASC" : "DESC"} LIMIT ?4`,
    args: [tenant, id, after ?? null, limit + 1],
  };
}

const membersSchema = z.array(
  z.object({
    kind: z.enum(["agent", "user"]),
    name: z.string(),
    displayName: z.string().nullable(),
    joinedAt: z.number(),
  }),
);

interface Readers {
  readonly rooms: Reader<typeof groupChats, GroupChat>;
  readonly messages: Reader<typeof groupChatMessages, GroupChatMessage>;
}

function readersOf(onBrokenRow: OnBrokenRow): Readers {
  return {
    rooms: {
      table: groupChats,
      tableName: getTableName(groupChats),
      key: groupChats.id,
      onBrokenRow,
      toRecord: toRoom,
    },
    messages: {
      table: groupChatMessages,
      tableName: getTableName(groupChatMessages),
      key: groupChatMessages.id,
      onBrokenRow,
      toRecord: toMessage,
    },
  };
}

function toRoom(record: InferSelectModel<typeof groupChats>, row: Row): GroupChat {
  const { tenant: _tenant, turnStartedAt: _started, turns: _turns, ...room } = record;
  const { held_by: holder, members } = row;
  return {
    ...room,
    members: readColumn("members", () => membersSchema.parse(JSON.parse(String(members)))),
    currentTurn: typeof holder === "string" ? holder : null,
  };
}

function toMessage(record: InferSelectModel<typeof groupChatMessages>, row: Row): GroupChatMessage {
  const { authorKind, authorName, authorDisplayName, ...message } = record;
  const { tenant: _tenant, turnNumber: _number, attempt: _attempt, ...rest } = message;
  const author = { kind: authorKind, name: authorName, displayName: authorDisplayName };
  return { ...rest, author, state: row["is_over"] === 1 ? endOf(rest.state) : rest.state };
}

/** Whose process died left the row as it was. */
function endOf(state: MessageState): MessageState {
  if (state === "streaming") return "stopped";
  return state === "queued" ? "completed" : state;
}

function withRoom(
  read: Readers,
  found: StatementResult | undefined,
  room: StatementResult | undefined,
): { readonly message: GroupChatMessage; readonly groupChat: GroupChat } | undefined {
  const message = readFirst(read.messages, found);
  const groupChat = readFirst(read.rooms, room);
  return message === undefined || groupChat === undefined ? undefined : { message, groupChat };
}
