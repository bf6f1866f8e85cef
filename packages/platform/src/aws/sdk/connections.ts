/** What is used of the `@connections` client, in a module of its own, so that it is loaded at the first use. */
export {
  ApiGatewayManagementApiClient,
  DeleteConnectionCommand,
  PostToConnectionCommand,
} from "@aws-sdk/client-apigatewaymanagementapi";
