/** What a message type of clients is: its form, and what is answered. */
import type * as z from "zod";
import type { CoreDeps } from "../core-deps.ts";
import type { JsonObject } from "../json.ts";
import type { Connection } from "./connection.ts";

export interface MessageKind<Message> {
  readonly schema: z.ZodType<Message>;
  readonly answer: (deps: CoreDeps, connection: Connection, message: Message) => Promise<JsonObject>;
}

export const defineMessage = <Message>(kind: MessageKind<Message>): MessageKind<Message> => kind;
