/**
 * Repositories of rooms that most requests have nothing to do with: each is read with the first call of one of its
 * functions, since every function on AWS would pay for all of them with its start.
 */
import type { FlowRunRepo } from "@toolyard/core/ports/flow-runs";
import type { ScheduleRepo } from "@toolyard/core/ports/schedules";
import type { GroupChatRepo } from "@toolyard/core/ports/group-chats";
import type { KnowledgeRepo } from "@toolyard/core/ports/knowledge";
import type { KnowledgeSearchRepo } from "@toolyard/core/ports/knowledge-search";
import type { FlowRepo } from "@toolyard/core/ports/flows";
import type { Repos } from "@toolyard/core/ports/repos";
import type { Shards } from "../database.ts";
import type { OnBrokenRow } from "./rows.ts";

const flowRunsFunctions = { load: true, write: true, changes: true, signal: true, recordWithSteps: true } as const;
const schedulesFunctions = {
  create: true,
  get: true,
  list: true,
  targets: true,
  due: true,
  take: true,
  pause: true,
  resume: true,
  delete: true,
} as const;
const groupChatsFunctions = {
  create: true,
  get: true,
  namingAgent: true,
  list: true,
  update: true,
  delete: true,
  join: true,
  leave: true,
  say: true,
  begin: true,
  open: true,
  note: true,
  close: true,
  end: true,
  messages: true,
  message: true,
  turn: true,
} as const;
const knowledgeFunctions = {
  createBase: true,
  getBase: true,
  listBases: true,
  updateBase: true,
  deleteBase: true,
  announceBlob: true,
  putDocument: true,
  getDocument: true,
  listDocuments: true,
  deleteDocument: true,
  retryDocument: true,
  openIngest: true,
  changeIngest: true,
  countChunks: true,
  writeChunks: true,
  serveVersion: true,
  buildVersion: true,
  finishIngest: true,
  listToBuild: true,
  queueToBuild: true,
  takeGarbage: true,
  deleteGarbageChunks: true,
  deleteGarbage: true,
} as const;
const knowledgeSearchFunctions = { find: true, search: true } as const;
const flowsFunctions = {
  create: true,
  get: true,
  list: true,
  update: true,
  publish: true,
  versions: true,
  version: true,
  definition: true,
  references: true,
  delete: true,
  createHook: true,
  listHooks: true,
  updateHook: true,
  deleteHook: true,
  openHook: true,
} as const;

type LateRepos = Pick<Repos, "flowRuns" | "schedules" | "groupChats" | "knowledgeSearch" | "flows" | "knowledge">;

export function createLateRepos(shards: Shards, onBrokenRow: OnBrokenRow): LateRepos {
  return {
    flowRuns: late<FlowRunRepo>(flowRunsFunctions, async () =>
      (await import("./flow-runs.ts")).createFlowRunRepo(shards),
    ),
    schedules: late<ScheduleRepo>(schedulesFunctions, async () =>
      (await import("./schedules.ts")).createScheduleRepo(shards, onBrokenRow),
    ),
    groupChats: late<GroupChatRepo>(groupChatsFunctions, async () =>
      (await import("./group-chats.ts")).createGroupChatRepo(shards),
    ),
    knowledgeSearch: late<KnowledgeSearchRepo>(knowledgeSearchFunctions, async () =>
      (await import("./knowledge-search.ts")).createKnowledgeSearchRepo(shards),
    ),
    flows: late<FlowRepo>(flowsFunctions, async () => (await import("./flows.ts")).createFlowRepo(shards, onBrokenRow)),
    knowledge: late<KnowledgeRepo>(knowledgeFunctions, async () =>
      (await import("./knowledge.ts")).createKnowledgeRepo(shards, onBrokenRow),
    ),
  };
}

type RepoFunction = (...given: never[]) => Promise<unknown>;

/** @param names all of its functions: what is wrapped or listed has to see them before they are read */
function late<R extends { readonly [K in keyof R]: RepoFunction }>(
  names: { readonly [K in keyof R]: true },
  read: () => Promise<R>,
): R {
  let reading: Promise<R> | undefined;
  const call =
    (name: keyof R): RepoFunction =>
    async (...given) => {
      reading ??= read();
      const repo = await reading;
      return repo[name](...given);
    };
  // Each name is one of the interface, and what it does is what the repository does.
  return Object.fromEntries(Object.keys(names).map((name) => [name, call(name as keyof R)])) as unknown as R;
}
