/**
 * Every route of the gateway. A route is one file and one line here; OpenAPI, authentication and the
 * isolation and paging suites follow from it.
 */
import type { RouteModule } from "../define-route.ts";
import { createApiKey, getApiKey, listApiKeys, revokeApiKey } from "./api-keys.ts";
import { getBlob, putBlob } from "./blobs.ts";
import { createBudget, deleteBudget, getBudget, listBudgets, updateBudget } from "./budgets.ts";
import { getCallArchive, listCallArchives } from "./call-archives.ts";
import {
  approveCall,
  cancelCall,
  createResultDownload,
  exportCalls,
  getCall,
  getCallResult,
  listCalls,
  rejectCall,
  replayCall,
} from "./calls.ts";
import { chatCompletions, typedChatCompletions, vcpChatCompletions } from "./chat-completions.ts";
import { deleteCredential, listCredentials, putCredential } from "./credentials.ts";
import { createDescriptorSet, deleteDescriptorSet, getDescriptorSet, listDescriptorSets } from "./descriptor-sets.ts";
import { docs, llms, root, security } from "./docs.ts";
import { live, ready, status } from "./health.ts";
import { humanTool } from "./human-tool.ts";
import { interrupt } from "./interrupt.ts";
import { invoke } from "./invoke-tool.ts";
import { queryKnowledge } from "./knowledge-query.ts";
import { createIssuer, deleteIssuer, listIssuers } from "./issuers.ts";
import { mcp, mcpMetadata, mcpToolset, mcpToolsetMetadata, resourceMetadata } from "./mcp.ts";
import { createEmbedding, createImage } from "./model-exchanges.ts";
import { getModel, listModels } from "./models.ts";
import { deleteNode, getNode, listNodes } from "./nodes.ts";
import { metrics } from "./metrics.ts";
import { createConnection, deleteConnection, finishConnectLink, followConnectLink, listConnections } from "./oauth.ts";
import { openapi } from "./openapi.ts";
import { pluginCallback, pluginCallbackByToken } from "./plugin-callback.ts";
import { createPlugin, deletePlugin, getPlugin, listPlugins, replacePlugin, updatePlugin } from "./plugins.ts";
import { getPluginConfig, getVcpConfig, putPluginConfig, putVcpConfig } from "./plugin-config.ts";
import { importPlugins } from "./plugins-import.ts";
import { getOperatorPrices, getPrices, putOperatorPrices, putPrices } from "./prices.ts";
import { createProvider, deleteProvider, getProvider, listProviders, updateProvider } from "./providers.ts";
import { createTicket, webSocket } from "./realtime.ts";
import { deleteFile, deleteSession, getFile, getSession, listFiles, listSessions, putFile } from "./sessions.ts";
import { getSettings, updateSettings } from "./settings.ts";
import { takeSmsReceipts } from "./sms-receipts.ts";
import { createTenant, eraseTenant, getTenant, listTenants, rotateTenantKey, updateTenant } from "./tenants.ts";
import {
  createSubscription,
  deleteSubscription,
  disableSubscription,
  enableSubscription,
  getSubscription,
  listFailedMessages,
  listSubscriptions,
  updateSubscription,
} from "./subscriptions.ts";
import {
  acceptToolServiceTools,
  createToolService,
  deleteToolService,
  disableToolService,
  enableToolService,
  getToolService,
  importToolService,
  listToolServiceReferences,
  listToolServices,
  listToolServiceSchemes,
  listToolServiceTools,
  testToolService,
  updateToolService,
} from "./tool-services.ts";
import { explainTool } from "./tools-explain.ts";
import { listTools } from "./tools-list.ts";
import { completeUpload, createDownload, createUpload, deleteUpload } from "./uploads.ts";
import { listUsage } from "./usage.ts";
import {
  deleteCharacter,
  deletePreset,
  deleteWorldBook,
  getCharacter,
  getPreset,
  getWorldBook,
  importCharacter,
  importWorldBook,
  listCharacters,
  listPresets,
  listWorldBooks,
  putCharacter,
  putPreset,
  putWorldBook,
} from "./vcp-tavern.ts";
import { getPreprocessorOrder, setPreprocessorOrder } from "./vcp-preprocessors.ts";
import {
  createVcpVariable,
  deleteVcpVariable,
  getVcpVariable,
  importVcpVariables,
  listVcpVariables,
  previewVcpVariables,
  updateVcpVariable,
} from "./vcp-variables.ts";
import {
  deletePluginRoute,
  deleteUpstreamPluginRoute,
  getPluginRoute,
  getUpstreamPluginRoute,
  patchPluginRoute,
  patchUpstreamPluginRoute,
  postPluginRoute,
  postUpstreamPluginRoute,
  putPluginRoute,
  putUpstreamPluginRoute,
} from "./vcp-plugin-routes.ts";
import { getVcpRuntime } from "./vcp-runtime.ts";
import {
  createWebhook,
  deleteWebhook,
  getWebhook,
  listWebhookDeliveries,
  listWebhooks,
  resendWebhookDelivery,
  rotateWebhookSecret,
  testWebhook,
  updateWebhook,
} from "./webhooks.ts";

export const routes = {
  chatCompletions,
  typedChatCompletions,
  vcpChatCompletions,
  humanTool,
  createEmbedding,
  createImage,
  listModels,
  listNodes,
  getNode,
  deleteNode,
  getModel,
  interrupt,
  listTools,
  mcp,
  mcpToolset,
  resourceMetadata,
  mcpMetadata,
  mcpToolsetMetadata,
  invokeTool: invoke,
  explainTool,
  listCalls,
  // Before `getCall`, whose path fits it as well.
  exportCalls,
  getCall,
  getCallResult,
  createResultDownload,
  cancelCall,
  approveCall,
  rejectCall,
  replayCall,
  listCallArchives,
  getCallArchive,
  createPlugin,
  importPlugins,
  getPluginConfig,
  putPluginConfig,
  getVcpConfig,
  putVcpConfig,
  listPlugins,
  getPlugin,
  replacePlugin,
  updatePlugin,
  deletePlugin,
  getVcpRuntime,
  getPluginRoute,
  postPluginRoute,
  putPluginRoute,
  patchPluginRoute,
  deletePluginRoute,
  getUpstreamPluginRoute,
  postUpstreamPluginRoute,
  putUpstreamPluginRoute,
  patchUpstreamPluginRoute,
  deleteUpstreamPluginRoute,
  createToolService,
  listToolServices,
  // Before `getToolService`, whose path fits it as well.
  listToolServiceSchemes,
  getToolService,
  updateToolService,
  deleteToolService,
  enableToolService,
  disableToolService,
  listToolServiceReferences,
  testToolService,
  listToolServiceTools,
  acceptToolServiceTools,
  importToolService,
  createDescriptorSet,
  listDescriptorSets,
  getDescriptorSet,
  deleteDescriptorSet,
  takeSmsReceipts,
  pluginCallback,
  pluginCallbackByToken,
  createSubscription,
  listSubscriptions,
  getSubscription,
  updateSubscription,
  deleteSubscription,
  enableSubscription,
  disableSubscription,
  listFailedMessages,
  putCredential,
  listCredentials,
  deleteCredential,
  createConnection,
  listConnections,
  deleteConnection,
  followConnectLink,
  finishConnectLink,
  listSessions,
  getSession,
  deleteSession,
  listFiles,
  getFile,
  putFile,
  deleteFile,
  createUpload,
  completeUpload,
  deleteUpload,
  createDownload,
  getBlob,
  putBlob,
  createApiKey,
  listApiKeys,
  getApiKey,
  revokeApiKey,
  createIssuer,
  listIssuers,
  deleteIssuer,
  createProvider,
  listProviders,
  getProvider,
  updateProvider,
  deleteProvider,
  createBudget,
  listBudgets,
  getBudget,
  updateBudget,
  deleteBudget,
  getPrices,
  putPrices,
  getOperatorPrices,
  putOperatorPrices,
  listUsage,
  createWebhook,
  listWebhooks,
  getWebhook,
  updateWebhook,
  deleteWebhook,
  rotateWebhookSecret,
  testWebhook,
  listWebhookDeliveries,
  resendWebhookDelivery,
  createVcpVariable,
  previewVcpVariables,
  importVcpVariables,
  listVcpVariables,
  getVcpVariable,
  updateVcpVariable,
  deleteVcpVariable,
  queryKnowledge,
  createRealtimeTicket: createTicket,
  webSocket,
  getPreprocessorOrder,
  setPreprocessorOrder,
  putPreset,
  listPresets,
  getPreset,
  deletePreset,
  importWorldBook,
  putWorldBook,
  listWorldBooks,
  getWorldBook,
  deleteWorldBook,
  importCharacter,
  putCharacter,
  listCharacters,
  getCharacter,
  deleteCharacter,
  getSettings,
  updateSettings,
  createTenant,
  listTenants,
  getTenant,
  updateTenant,
  rotateTenantKey,
  eraseTenant,
  health: status,
  healthLive: live,
  healthReady: ready,
  root,
  docs,
  metrics,
  openapi,
  llms,
  security,
} satisfies Record<string, RouteModule>;
