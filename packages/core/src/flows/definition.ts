/**
 * A flow as its author writes it: versioned JSON of nodes that follow each other (tool management specification,
 * "工作流调用"). Published as JSON Schema at `GET /v1/flows/schema`; what a schema cannot say is in `validate.ts`.
 */
import * as z from "zod";
import { isJsonObject, type JsonObject, type JsonValue } from "../json.ts";

/** Also what stands in `flow://name`, and under which name a model calls it. */
export const flowNameSchema = z
  .string()
  .regex(
    /^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/,
    "must have 1 to 64 letters, digits, '_' or '-', and begin with one of the first two",
  )
  .meta({ example: "order_intake" });

/** Words of `on_error`, which therefore name no node. */
const onErrorWords = ["fail", "continue"] as const;

/** Begins with a letter, so that expressions can name it: `steps.check_stock.output`. */
export const nodeIdSchema = z
  .string()
  .regex(/^[A-Za-z][A-Za-z0-9_]{0,63}$/, "must have 1 to 64 letters, digits or '_', and begin with a letter")
  .refine(
    (id) => !onErrorWords.some((word) => word === id),
    "cannot be 'fail' or 'continue', which mean something in 'on_error'",
  );

const variableNameSchema = z
  .string()
  .regex(/^[A-Za-z][A-Za-z0-9_]{0,63}$/, "must have 1 to 64 letters, digits or '_', and begin with a letter");

/** JSON as it came: copying it would lose names like `__proto__`. */
const jsonObjectSchema = z
  .custom<JsonObject>(isJsonObject, "Invalid input: expected object")
  .meta({ type: "object", additionalProperties: true });

/** An expression in the place of a value; anything else stands for itself. */
export const expressionMark = "$";

/** JSON in which `{"$": "<JSONata>"}` stands for what the expression comes to. */
export type FlowValue = JsonValue;

const valueSchema = z
  .custom<FlowValue>((value) => value !== undefined, "Invalid input: expected a value")
  .meta({
    description:
      'Any JSON. {"$": "steps.fetch.output.total"}, at any depth, stands for what the JSONata expression comes to over {input, steps, context, item}.',
  });

const valueObjectSchema = z.custom<JsonObject>(isJsonObject, "Invalid input: expected object").meta({
  type: "object",
  additionalProperties: true,
  description: 'An object of values, or {"$": "<JSONata>"} that comes to one.',
});

function expressionOf(text: z.ZodString): z.ZodString {
  return text.min(1).max(10_000).meta({
    description: "JSONata over {input, steps, context, item}.",
    example: "$sum(steps.fetch.output.rows.amount)",
  });
}

const expressionSchema = expressionOf(z.string());

/** Of fields that take nothing but an expression: whoever marks it there, as in a value, is told that. */
const bareExpressionSchema = expressionOf(
  z.string({
    error: ({ input }) =>
      isJsonObject(input)
        ? `is an expression itself: write its text alone, not in {"${expressionMark}": …}`
        : undefined,
  }),
);

/** A text, or the expression that comes to it. */
const textSchema = z
  .union([z.string().min(1).max(100_000), z.strictObject({ [expressionMark]: expressionSchema })])
  .meta({ description: 'A text, or {"$": "<JSONata>"} that comes to one.' });

const millisecondsSchema = z.int().min(1).max(31_536_000_000);

const retrySchema = z.strictObject({
  max_attempts: z.int().min(1).max(10).meta({ description: "In all, the first included." }),
  backoff_ms: z.int().min(0).max(3_600_000).default(1_000).meta({ description: "Before the second attempt." }),
  factor: z.number().min(1).max(10).default(2).meta({ description: "By how much each pause is longer." }),
  max_backoff_ms: z.int().min(0).max(86_400_000).default(60_000),
});
export type FlowRetry = z.output<typeof retrySchema>;

const described = { description: z.string().max(2_000).optional() };

/** What every node that can fail has. */
const failing = {
  ...described,
  on_error: z
    .union([z.enum(onErrorWords), nodeIdSchema])
    .default("fail")
    .meta({
      description:
        "Where an error leads: the id of a node, `continue` (to `next`; the error is `steps.<id>.error`), or `fail`, which ends the flow with it.",
    }),
};

/** What every node that does something has. */
const working = {
  ...failing,
  next: nodeIdSchema.optional().meta({ description: "Absent: the flow, or the body this node is in, ends here." }),
  retry: retrySchema.optional(),
  timeout_ms: millisecondsSchema
    .optional()
    .meta({ description: "After which the step fails with `flow_step_timeout`." }),
};

const toolNode = z
  .strictObject({
    kind: z.literal("tool"),
    uri: z
      .union([z.string().min(1).max(2_048), z.strictObject({ [expressionMark]: expressionSchema })])
      .optional()
      .meta({ description: "Tool URI.", example: "api://crm/customer_list?timeout=5000" }),
    name: z.string().min(1).max(64).optional().meta({ description: "Instead of `uri`: the tool's name." }),
    arguments: valueObjectSchema.default({}),
    ...working,
  })
  .refine(({ uri, name }) => (uri === undefined) !== (name === undefined), {
    message: "needs either 'uri' or 'name'",
    path: ["uri"],
  });

const conditionNode = z.strictObject({
  kind: z.literal("condition"),
  if: bareExpressionSchema,
  // oxlint-disable-next-line unicorn/no-thenable -- the field's name in every such language; no node is ever awaited
  then: nodeIdSchema,
  else: nodeIdSchema.optional().meta({ description: "Absent: the flow, or the body this node is in, ends here." }),
  ...failing,
});

const switchNode = z.strictObject({
  kind: z.literal("switch"),
  on: bareExpressionSchema.meta({
    description: "Comes to a text, a number or true/false, which is looked up in `cases`.",
  }),
  cases: z.record(z.string().max(1_000), nodeIdSchema),
  default: nodeIdSchema.optional().meta({ description: "Absent: a value without a case is an error." }),
  ...failing,
});

const waitNode = z
  .strictObject({
    kind: z.literal("wait"),
    duration_ms: z.union([millisecondsSchema, z.strictObject({ [expressionMark]: expressionSchema })]).optional(),
    until: textSchema.optional().meta({
      description: "RFC 3339; without an offset on the clock of the setting `time_zone`.",
      example: "2026-12-01T09:00:00Z",
    }),
    signal: variableNameSchema.optional().meta({
      description:
        "Waits for `POST /v1/runs/{id}/signal` of this name, whose payload is the output; `timeout_ms` bounds it.",
    }),
    ...working,
  })
  .refine(
    ({ duration_ms: duration, until, signal }) =>
      [duration, until, signal].filter((each) => each !== undefined).length === 1,
    { message: "needs one of 'duration_ms', 'until' and 'signal'", path: ["duration_ms"] },
  );

const approvalNode = z.strictObject({
  kind: z.literal("approval"),
  message: textSchema,
  form: jsonObjectSchema.optional().meta({
    description: "JSON Schema of what is to be filled in: an object of texts, numbers, booleans and choices.",
  }),
  ...working,
});

const flowNode = z.strictObject({
  kind: z.literal("flow"),
  name: flowNameSchema,
  version: z.int().min(1).optional().meta({ description: "Absent: the latest published." }),
  input: valueObjectSchema.default({}),
  async: z.boolean().default(false).meta({ description: "Goes on at once; the output is `{run_id}`." }),
  ...working,
});

const agentNode = z.strictObject({
  kind: z.literal("agent"),
  agent: z.string().min(1).max(64),
  prompt: textSchema,
  context: valueObjectSchema.optional(),
  ...working,
});

const modelNode = z.strictObject({
  kind: z.literal("model"),
  model: z
    .union([z.string().min(1).max(256), z.strictObject({ [expressionMark]: expressionSchema })])
    .optional()
    .meta({ description: "Absent, or an expression that comes to nothing: the tenant's default." }),
  messages: z
    .array(z.strictObject({ role: z.enum(["system", "user", "assistant"]), content: textSchema }))
    .min(1)
    .max(100),
  max_tokens: z.int().min(1).max(1_000_000).optional(),
  temperature: z.number().min(0).max(2).optional(),
  stream: z
    .boolean()
    .default(false)
    .meta({ description: "The answer is sent as `message_chunk` events while it is made." }),
  ...working,
});

const transformNode = z.strictObject({ kind: z.literal("transform"), expression: bareExpressionSchema, ...working });

const endNode = z.strictObject({
  kind: z.literal("end"),
  output: valueSchema.optional(),
  ...described,
});

const failNode = z.strictObject({
  kind: z.literal("fail"),
  code: z
    .string()
    .regex(/^[a-z][a-z0-9_]{0,63}$/, "must have 1 to 64 characters a-z, 0-9 and '_'")
    .default("flow_failed"),
  message: textSchema,
  ...described,
});

/** Nodes of their own, with an end of their own: a branch, or what is done to each item. */
export interface FlowBody {
  readonly start: string;
  readonly nodes: Readonly<Record<string, FlowNode>>;
  readonly output?: FlowValue | undefined;
}

const bodyFields = {
  start: nodeIdSchema,
  nodes: z.record(
    nodeIdSchema,
    z.lazy((): z.ZodType<FlowNode> => nodeSchema),
  ),
  output: valueSchema
    .optional()
    .meta({ description: "What it comes to; absent: the output of the `end` node or the last step." }),
};
const bodySchema: z.ZodType<FlowBody> = z.strictObject(bodyFields).meta({ id: "FlowBody" });

const parallelNode = z.strictObject({
  kind: z.literal("parallel"),
  branches: z
    .record(variableNameSchema, bodySchema)
    .refine(
      (branches) => Object.keys(branches).length > 0 && Object.keys(branches).length <= 32,
      "needs 1 to 32 branches",
    )
    .meta({ description: "Run at once; the output is an object of theirs." }),
  ...working,
});

const mapNode = z.strictObject({
  kind: z.literal("map"),
  items: valueSchema.meta({ description: 'A list, or {"$": "<JSONata>"} that comes to one.' }),
  as: variableNameSchema.default("item").meta({ description: "What expressions in `body` call the item." }),
  body: bodySchema,
  concurrency: z.int().min(1).max(100).default(10),
  ...working,
});

type ToolNode = z.output<typeof toolNode>;
export type ConditionNode = z.output<typeof conditionNode>;
export type SwitchNode = z.output<typeof switchNode>;
export type WaitNode = z.output<typeof waitNode>;
type ApprovalNode = z.output<typeof approvalNode>;
type SubFlowNode = z.output<typeof flowNode>;
type AgentNode = z.output<typeof agentNode>;
export type ModelNode = z.output<typeof modelNode>;
type TransformNode = z.output<typeof transformNode>;
type EndNode = z.output<typeof endNode>;
type FailNode = z.output<typeof failNode>;
export type ParallelNode = z.output<typeof parallelNode>;
export type MapNode = z.output<typeof mapNode>;

export type FlowNode =
  | ToolNode
  | ConditionNode
  | SwitchNode
  | WaitNode
  | ApprovalNode
  | SubFlowNode
  | AgentNode
  | ModelNode
  | TransformNode
  | EndNode
  | FailNode
  | ParallelNode
  | MapNode;

export const nodeSchema: z.ZodType<FlowNode> = z
  .discriminatedUnion("kind", [
    toolNode,
    conditionNode,
    switchNode,
    waitNode,
    approvalNode,
    flowNode,
    agentNode,
    modelNode,
    transformNode,
    endNode,
    failNode,
    parallelNode,
    mapNode,
  ])
  .meta({ id: "FlowNode" });

export const flowDefinitionSchema = z.strictObject({
  schema_version: z.literal(1),
  name: flowNameSchema,
  description: z.string().trim().min(1).max(4_000).meta({ description: "For models, too: what the flow is good for." }),
  input: jsonObjectSchema
    .default({ type: "object" })
    .meta({ description: "JSON Schema of the input, an object schema.", example: { type: "object" } }),
  context: z.record(variableNameSchema, valueSchema).default({}).meta({
    description:
      "Variables of the run, beside `tenantId` and `buCode`, which are always there. An argument of the same name beats one.",
  }),
  ...bodyFields,
  max_steps: z
    .int()
    .min(1)
    .max(10_000)
    .default(1_000)
    .meta({ description: "Steps that a run may take, over all loops, items and branches." }),
  effect: z
    .enum(["read", "write"])
    .default("write")
    .meta({ description: "`read`: the flow changes nothing anywhere, so running it twice does no harm." }),
});
export type FlowDefinition = z.output<typeof flowDefinitionSchema>;
