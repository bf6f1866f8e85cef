/**
 * A chat's messages are prepared between its admission and its first word to a model. That may take as long as a
 * tool call, so meanwhile its clock runs. Whoever opens the chat holds its row, and stops this where it is cancelled.
 */
import type { CallContext } from "../../context.ts";
import type { CoreDeps } from "../../core-deps.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import { prepareMessages } from "./prepare-messages.ts";
import type { ChatToPrepare, PreparedChat } from "./prepared-chat.ts";

/** @throws GatewayError as `prepareMessages`; `wall_clock_exceeded`, and why it was stopped */
export async function prepareChat(deps: CoreDeps, context: CallContext, chat: ChatToPrepare): Promise<PreparedChat> {
  const { callId, stop, wallClockMs } = chat;
  const since = performance.now();
  const timer = setTimeout(() => {
    const message = `The messages were not prepared within ${wallClockMs} ms (setting 'wall_clock_ms').`;
    stop.abort(new GatewayError("wall_clock_exceeded", message));
  }, wallClockMs);
  try {
    const prepared = await prepareMessages(deps, context, {
      messages: chat.messages,
      model: chat.plan.routes[0]?.model ?? "",
      callId,
      session: chat.plan.request.sessionId,
      extensions: chat.plan.request.vcpExtensions,
      isWhole: chat.isWhole,
      knowledge: chat.knowledge,
      signal: stop.signal,
    });
    if (stop.signal.reason instanceof GatewayError) throw stop.signal.reason;
    return {
      ...prepared,
      wallClockMs: Math.max(1_000, wallClockMs - Math.round(performance.now() - since)),
    };
  } catch (thrown) {
    throw stop.signal.reason instanceof GatewayError ? stop.signal.reason : thrown;
  } finally {
    clearTimeout(timer);
  }
}
