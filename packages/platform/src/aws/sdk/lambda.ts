/** What is used of the Lambda client, in a module of its own, so that it is loaded at the first use. */
export { InvokeWithResponseStreamCommand, LambdaClient } from "@aws-sdk/client-lambda";
