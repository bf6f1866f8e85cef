/**
 * The routes of the `chat` function: those that answer by streaming, or that take longer than the REST API
 * waits for a whole answer. It loads nothing of the others, which keeps its cold start short; the server
 * form and the `api` function serve these as well.
 */
import type { RouteModule } from "../define-route.ts";
import { awaitedRoutes } from "./awaited.ts";
import {
  createGroupChat,
  deleteGroupChat,
  getGroupChat,
  getGroupChatMessage,
  joinGroupChat,
  leaveGroupChat,
  listGroupChatMessages,
  listGroupChats,
  redoGroupChat,
  speakInGroupChat,
  stopGroupChat,
  updateGroupChat,
} from "./group-chats.ts";
import { queryKnowledge } from "./knowledge-query.ts";
import { createImage } from "./model-exchanges.ts";
import { mcp, mcpToolset } from "./mcp.ts";
import {
  approveRun,
  cancelRun,
  getRun,
  listRuns,
  rejectRun,
  replayRun,
  resumeRun,
  runWorkflow,
  signalRun,
} from "./runs.ts";

export const streamedRoutes = {
  ...awaitedRoutes,
  createImage,
  // What is beside their streams: an address and what lies under it are one function's.
  createGroupChat,
  listGroupChats,
  getGroupChat,
  updateGroupChat,
  deleteGroupChat,
  joinGroupChat,
  leaveGroupChat,
  speakInGroupChat,
  listGroupChatMessages,
  getGroupChatMessage,
  stopGroupChat,
  redoGroupChat,
  queryKnowledge,
  mcp,
  mcpToolset,
  runWorkflow,
  listRuns,
  getRun,
  cancelRun,
  signalRun,
  approveRun,
  rejectRun,
  resumeRun,
  replayRun,
} satisfies Record<string, RouteModule>;
