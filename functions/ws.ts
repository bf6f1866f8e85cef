/** Lambda: `/ws` behind API Gateway's WebSocket API, all of its routes. */
import { composeFunction } from "./compose-function.ts";
import { EnvironmentError } from "./env.ts";
import { createSocketHandler } from "./realtime/lambda.ts";

const { app, push, finish } = await composeFunction("all");
if (push === undefined) throw new EnvironmentError(["PUSH_URL: must be set where the WebSocket API holds connections"]);

/** @public The runtime calls it by name. */
export const handler = createSocketHandler(app, push, finish);
