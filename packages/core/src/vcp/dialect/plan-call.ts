/**
 * From a request to the call that it means: which tool, with which arguments, or why none. The dispatcher still
 * decides whether it may run.
 */
import { isBoundByName } from "../../callers/caller.ts";
import type { CallContext } from "../../context.ts";
import type { CoreDeps } from "../../core-deps.ts";
import type { JsonObject } from "../../json.ts";
import type { FoundTool } from "../../tools/catalog.ts";
import type { DispatchItem } from "../../tools/prepare.ts";
import { isVcpPlugin } from "../../tools/tool.ts";
import { globalValueName } from "../plugins/configuration-names.ts";
import { openValue } from "../plugins/configuration.ts";
import { riverOf } from "./conversation.ts";
import { argumentsFor, findByName, requestFor } from "./find-tool.ts";
import { asMcpoResult, mcpoName, planMcpo } from "./mcpo.ts";
import { textResult, type CallResult } from "./results.ts";
import { isTimed, planTimedCall } from "./timed-call.ts";
import type { ToolRequest } from "./tool-request.ts";

export interface PlannedCall {
  readonly request: ToolRequest;
  readonly item: DispatchItem;
  /** Its results have VCP's form already. */
  readonly isOfPlugin: boolean;
  /** What a result becomes. */
  readonly finish?: (result: CallResult) => CallResult;
  /** Where the outcome is the text for the model itself. */
  readonly isText?: true;
}

export interface PlanOptions {
  readonly context: CallContext;
  /** Tools that work on a workspace may be called: the request names a session. */
  readonly hasSession: boolean;
  /** What a tool may ask to be given; absent: a person calls, in no conversation. */
  readonly messages?: readonly JsonObject[];
}

export async function planCall(deps: CoreDeps, asked: ToolRequest, options: PlanOptions): Promise<PlannedCall> {
  const { name } = asked;
  const { context } = options;
  const found = findByName(deps.adapters, context, name);
  const request = found === undefined ? asked : requestFor(found.tool, asked);
  const password = request.args[passwordKey];
  if (typeof password === "string") context.redactor.add(password);
  const why = request.flaw ?? (await passwordFlaw(deps, context, request.args));
  if (why !== undefined) return refused(request, found, why);
  const args = withoutPassword(context, request.args);
  if (found === undefined && name === mcpoName) return ofMcpo(deps, { ...request, args }, options);
  if (found === undefined) return unknown(request);
  const full = argumentsFor(found.tool, { ...args, ...extrasOf(request, options.messages) });
  if (options.messages !== undefined && isTimed(args)) {
    const timed = planTimedCall(deps, context, { found, args: full, contact: args["timely_contact"] });
    if (typeof timed === "string") return refused(request, found, timed);
    return { request, item: timed, isOfPlugin: false, isText: true };
  }
  return planned(request, found, { args: full, options });
}

function planned(
  request: ToolRequest,
  found: FoundTool,
  { args, options }: { readonly args: JsonObject; readonly options: PlanOptions },
): PlannedCall {
  const item = { target: found.tool.uri, arguments: args, isOffered: mayCall(found, options) };
  return { request, item, isOfPlugin: isVcpPlugin(found.tool) };
}

function unknown(request: ToolRequest): PlannedCall {
  return {
    request,
    item: { target: request.name, arguments: request.args, isOffered: false },
    isOfPlugin: false,
  };
}

function refused(request: ToolRequest, found: FoundTool | undefined, why: string): PlannedCall {
  // The arguments are not whole, or not for the record.
  const item = { target: found?.tool.uri ?? request.name, arguments: {}, refusal: why };
  return { request, item, isOfPlugin: false };
}

function ofMcpo(deps: CoreDeps, request: ToolRequest, options: PlanOptions): PlannedCall {
  const plan = planMcpo(deps.adapters, options.context, request.args);
  switch (plan.kind) {
    case "answer":
      return {
        request,
        item: {
          target: plan.found.tool.uri,
          arguments: argumentsFor(plan.found.tool, request.args),
          found: plan.found,
        },
        isOfPlugin: false,
      };
    case "refused":
      return refused(request, undefined, plan.why);
    case "call": {
      const { found, name, args } = plan;
      if (found === undefined)
        return { ...unknown(request), item: { target: name, arguments: args, isOffered: false } };
      const finish = (result: CallResult): CallResult =>
        result.end === "succeeded"
          ? { ...result, ...textResult(asMcpoResult(name, found.tool, result.value)) }
          : result;
      return { ...planned(request, found, { args, options }), finish };
    }
    default:
      return plan satisfies never;
  }
}

/** Workspace tools need a workspace; a request that names no session does not ask for one. */
function mayCall({ tool }: FoundTool, { context, hasSession }: PlanOptions): boolean {
  return tool.kind !== "NATIVE" || hasSession || isBoundByName(context.caller, tool.name);
}

function extrasOf({ river, vref }: ToolRequest, messages: readonly JsonObject[] | undefined): JsonObject {
  if (messages === undefined) return {};
  const context = river === null ? undefined : riverOf(messages, river);
  return {
    ...(context === undefined ? {} : { river_context: context }),
    // Documents of knowledge bases have no addresses that a plugin could open.
    ...(vref === null ? {} : { vref_files: [] }),
  };
}

const passwordKey = "tool_password";
/** The value that an administrator's plugins are given, too. */
const authCodeName = globalValueName("AuthCode");

/** Where the tenant wants it, every call brings the code; what is wrong otherwise. */
async function passwordFlaw(deps: CoreDeps, context: CallContext, args: JsonObject): Promise<string | undefined> {
  if (!context.config.settings.vcp_tool_password) return undefined;
  // The tenant's: a user's own value of that name says nothing.
  const code = await openValue(deps, context, authCodeName);
  if (code !== undefined) context.redactor.add(code);
  return code !== undefined && args[passwordKey] === code ? undefined : "tool_password 验证失败";
}

/** A plugin may want to see it where the tenant does not check it. */
function withoutPassword(context: CallContext, args: JsonObject): JsonObject {
  if (!context.config.settings.vcp_tool_password) return args;
  const { [passwordKey]: _password, ...rest } = args;
  return rest;
}
