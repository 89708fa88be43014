//! Encoding and decoding of messages that are known by their descriptors only.

use prost::Message;
use prost_reflect::{DynamicMessage, MessageDescriptor};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// Reads messages of one type and writes messages of any type.
#[derive(Debug, Clone)]
pub struct MessageCodec {
    pub input: MessageDescriptor,
}

impl Codec for MessageCodec {
    type Encode = DynamicMessage;
    type Decode = DynamicMessage;
    type Encoder = MessageCodec;
    type Decoder = MessageCodec;

    fn encoder(&mut self) -> MessageCodec {
        self.clone()
    }

    fn decoder(&mut self) -> MessageCodec {
        self.clone()
    }
}

impl Encoder for MessageCodec {
    type Item = DynamicMessage;
    type Error = Status;

    fn encode(&mut self, message: DynamicMessage, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        message.encode(buffer).map_err(|error| Status::internal(error.to_string()))
    }
}

impl Decoder for MessageCodec {
    type Item = DynamicMessage;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<DynamicMessage>, Status> {
        let decoded = DynamicMessage::decode(self.input.clone(), buffer);
        let name = self.input.name();
        decoded.map(Some).map_err(|error| Status::invalid_argument(format!("the request is no `{name}`: {error}")))
    }
}
