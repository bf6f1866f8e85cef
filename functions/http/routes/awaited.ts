/** The routes of the `chat` function that it starts with; see late-app.ts. */
import type { RouteModule } from "../define-route.ts";
import { chatCompletions, typedChatCompletions, vcpChatCompletions } from "./chat-completions.ts";
import { live, ready } from "./health.ts";

export const awaitedRoutes = {
  chatCompletions,
  typedChatCompletions,
  vcpChatCompletions,
  // By which a deployment is looked at before it gets traffic.
  healthLive: live,
  healthReady: ready,
} satisfies Record<string, RouteModule>;
